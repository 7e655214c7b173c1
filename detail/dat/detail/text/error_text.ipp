// Definitions of error::message() and of the std::error_category, and the names of errnos.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <dat/detail/text/error_text.hpp>
#include <dat/detail/text/kernel_errno.hpp>
#include <dat/detail/text/remedy.hpp>
#include <dat/detail/text/return_names.hpp>

#include <cstring>

namespace dat { inline namespace v0 {
namespace detail {

// "ENOMEM (Cannot allocate memory)". It does not use strerror(), which may share its buffer between threads.
DAT_DECL std::string errno_text(int errnum) {
  if (errnum == kernel_enotsupp) return "ENOTSUPP (Operation is not supported by the kernel)";
#if defined(__GLIBC__) && (__GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 32))
  const char* const name = ::strerrorname_np(errnum);
  const char* const description = ::strerrordesc_np(errnum);
  if (name != nullptr && description != nullptr) return std::string(name).append(" (").append(description).append(")");
#endif
  return std::string("errno ").append(std::to_string(errnum));
}

DAT_DECL std::string object_text(object_kind kind, std::uint32_t id) {
  std::string text(to_string(kind));
  if (id != 0) text.append(" ").append(std::to_string(id));
  return text;
}

DAT_DECL std::string meaning_text(return_type type, return_subtype subtype) {
  std::string text(describe(type).meaning);
  if (subtype == return_subtype::none) return text;
  return text.append(": ").append(describe(subtype).meaning);
}

// Puts the text into quotation marks and replaces each unsuitable character by one, so that lines and encoding of a log
// stay intact.
DAT_DECL std::string quoted_text(std::string_view quoted, bool cut) {
  std::string text("\"");
  for (const char c : quoted) text += c >= ' ' && c <= '~' ? c : '?';
  return text.append(cut ? "...\"" : "\"");
}

class __attribute__((visibility("default"))) error_category_impl final : public std::error_category {
public:
  [[nodiscard]] const char* name() const noexcept override { return "dat"; }

  [[nodiscard]] std::string message(int value) const override {
    const auto word = static_cast<std::uint32_t>(value);
    return meaning_text(dat::type_of(word), dat::subtype_of(word));
  }

  [[nodiscard]] std::error_condition default_error_condition(int value) const noexcept override {
    switch (dat::type_of(static_cast<std::uint32_t>(value))) {
    case return_type::abort:
      return std::errc::operation_canceled;
    case return_type::conn_qual_in_use:
    case return_type::port_in_use:
      return std::errc::address_in_use;
    case return_type::conn_qual_unavailable:
      return std::errc::address_not_available;
    case return_type::insufficient_resources:
      return insufficient(value);
    case return_type::invalid_handle:
      return std::errc::bad_file_descriptor;
    case return_type::invalid_parameter:
      return std::errc::invalid_argument;
    case return_type::invalid_state:
      return state(value);
    case return_type::length_error:
      return std::errc::message_size;
    case return_type::model_not_supported:
    case return_type::not_implemented:
      return std::errc::not_supported;
    case return_type::provider_not_found:
      return std::errc::no_such_device;
    case return_type::privileges_violation:
      return std::errc::permission_denied;
    case return_type::protection_violation:
      return std::errc::operation_not_permitted;
    case return_type::queue_empty:
      return std::errc::resource_unavailable_try_again;
    case return_type::queue_full:
      return std::errc::no_buffer_space;
    case return_type::timeout_expired:
      return std::errc::timed_out;
    case return_type::provider_already_registered:
      return std::errc::file_exists;
    case return_type::provider_in_use:
      return std::errc::device_or_resource_busy;
    case return_type::invalid_address:
      return address(value);
    case return_type::interrupted_call:
      return std::errc::interrupted;
    case return_type::comm_not_supported:
      return std::errc::protocol_not_supported;
    case return_type::success:
    case return_type::internal_error:
    case return_type::extension_base:
      break;
    }
    return {value, *this};
  }

  // A condition of this category without a subtype matches every subtype of its type.
  [[nodiscard]] bool equivalent(int value, const std::error_condition& condition) const noexcept override {
    // Compares by name, not by address: see category().
    if (std::string_view(condition.category().name()) != name()) return default_error_condition(value) == condition;
    const auto have = static_cast<std::uint32_t>(value);
    const auto want = static_cast<std::uint32_t>(condition.value());
    return dat::type_of(have) == dat::type_of(want) &&
           (dat::subtype_of(want) == return_subtype::none || dat::subtype_of(have) == dat::subtype_of(want));
  }

private:
  static std::error_condition insufficient(int value) noexcept {
    const auto subtype = dat::subtype_of(static_cast<std::uint32_t>(value));
    const bool memory = subtype == return_subtype::resource_memory || subtype == return_subtype::resource_memory_region;
    return memory ? std::errc::not_enough_memory : std::errc::no_buffer_space;
  }

  static std::error_condition state(int value) noexcept {
    switch (dat::subtype_of(static_cast<std::uint32_t>(value))) {
    case return_subtype::ep_connected:
      return std::errc::already_connected;
    case return_subtype::ep_actconnpending:
      return std::errc::connection_already_in_progress;
    case return_subtype::ep_unconnected:
    case return_subtype::ep_disconnected:
      return std::errc::not_connected;
    default:
      return std::errc::device_or_resource_busy;
    }
  }

  static std::error_condition address(int value) noexcept {
    switch (dat::subtype_of(static_cast<std::uint32_t>(value))) {
    case return_subtype::address_unreachable:
      return std::errc::host_unreachable;
    case return_subtype::address_unsupported:
      return std::errc::address_family_not_supported;
    default:
      return std::errc::invalid_argument;
    }
  }
};

} // namespace detail

// Default visibility lets the dynamic linker merge the copies of all shared objects into one. Two cases stay apart: a
// program that does not export its symbols (-rdynamic) and loads a plugin, and two plugins compiled by clang and loaded
// RTLD_LOCAL.
DAT_DECL const std::error_category& category() noexcept {
  static const detail::error_category_impl instance;
  return instance;
}

DAT_DECL std::error_code make_error_code(const error& e) noexcept {
  return {static_cast<int>(e.value() & ~return_class_mask), category()};
}

DAT_DECL std::error_condition make_error_condition(return_type type) noexcept {
  return {static_cast<int>(static_cast<std::uint32_t>(type)), category()};
}

DAT_DECL std::error_code error::code() const noexcept { return make_error_code(*this); }

DAT_DECL std::string error::message() const {
  std::string text;
  if (call_ != nullptr) text.append(call_);
  if (object() != object_kind::none)
    text.append(text.empty() ? "on " : " on ").append(detail::object_text(object(), object_id()));
  if (!text.empty()) text += " failed";
  if (quoted_ != 0) {
    const bool cut = quoted_ > quote_capacity + 1;
    text.append(text.empty() ? "for " : " for ").append(detail::quoted_text(quoted(), cut));
  }
  if (!text.empty()) text += ": ";
  const std::string remedy = detail::remedy(*this);
  // Where a remedy names the argument, its position in uDAPL's C function would mislead.
  const bool position = subtype_ >= return_subtype::arg1 && subtype_ <= return_subtype::arg10;
  text += detail::meaning_text(type_, position && !remedy.empty() ? return_subtype::none : subtype_);
  const facts_of_call known = facts();
  if (known.verb != nullptr) text.append(": ").append(known.verb);
  if (known.sys_errno != 0)
    text.append(known.verb != nullptr ? " gave " : ": ").append(detail::errno_text(known.sys_errno));
  const bool no_room = type_ == return_type::insufficient_resources && subtype_ == return_subtype::resource_tevd;
  if (known.index != 0 && no_room) {
    text.append(", where room for ").append(std::to_string(known.index)).append(" completions is needed");
  } else if (known.index != 0) {
    // The counted objects depend on the kind: operations that an endpoint took, or events that stay in an evd.
    const bool events = object() == object_kind::evd;
    text.append(events ? " with " : " after ").append(std::to_string(known.index));
    text.append(events ? " event" : " operation").append(known.index == 1 ? " " : "s ");
    text.append(events ? "queued" : known.index == 1 ? "was taken" : "were taken");
  }
  text += '.';
  if (!remedy.empty()) text.append(" ").append(remedy);
  return text;
}

}} // namespace dat::v0
