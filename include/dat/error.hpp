// Errors: DAT return words, dat::error, and its place in std::error_code.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/base/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace dat { inline namespace v0 {

/// Bits 31-30 of a DAT_RETURN word (uDAPL 2.0 §A.5).
enum class return_class : std::uint32_t { success = 0x00000000, warning = 0x40000000, error = 0x80000000 };

/// Bits 29-16 of a DAT_RETURN word, the kind of failure. 0x00150000 is not assigned.
enum class return_type : std::uint32_t {
  success = 0x00000000,                     ///< DAT_SUCCESS
  abort = 0x00010000,                       ///< the adapter was closed or the evd destroyed during the call
  conn_qual_in_use = 0x00020000,            ///< another service point listens on this connection qualifier
  insufficient_resources = 0x00030000,      ///< a limit was reached, which the subtype names
  internal_error = 0x00040000,              ///< a fault that no argument of the caller explains
  invalid_handle = 0x00050000,              ///< an empty (moved-from, closed) handle
  invalid_parameter = 0x00060000,           ///< an argument out of its range, which the subtype names
  invalid_state = 0x00070000,               ///< the object's state does not allow the call; the subtype is the state
  length_error = 0x00080000,                ///< more bytes than the buffers have, or than the device can move at once
  model_not_supported = 0x00090000,         ///< this device or this library does not support it
  provider_not_found = 0x000A0000,          ///< no adapter of that name, version or thread safety
  privileges_violation = 0x000B0000,        ///< a right is missing
  protection_violation = 0x000C0000,        ///< memory and endpoint belong to different protection zones
  queue_empty = 0x000D0000,                 ///< nothing to dequeue
  queue_full = 0x000E0000,                  ///< no room for one more event
  timeout_expired = 0x000F0000,             ///< the time limit passed first
  provider_already_registered = 0x00100000, ///< the registry already has this name
  provider_in_use = 0x00110000,             ///< the registry entry is open
  invalid_address = 0x00120000,             ///< malformed, unsupported or unreachable address
  interrupted_call = 0x00130000,            ///< a signal ended a blocking wait
  conn_qual_unavailable = 0x00140000,       ///< no connection qualifier is free
  port_in_use = 0x00160000,                 ///< the port of a common service point is taken
  comm_not_supported = 0x00170000,          ///< this (domain, type, protocol) is not supported
  extension_base = 0x10000000,              ///< first code of extensions; DAT_IB_ERR
  not_implemented = 0x3FFF0000,             ///< DAT_NOT_IMPLEMENTED; dat itself never returns it
};

/// DAT_NAME_NOT_FOUND, the second name of DAT_PROVIDER_NOT_FOUND.
inline constexpr return_type name_not_found = return_type::provider_not_found;
/// DAT_IB_ERR, the error of the InfiniBand extensions.
inline constexpr return_type ib_error = return_type::extension_base;

inline constexpr std::uint32_t return_class_mask = 0xC0000000;   ///< bits of the class
inline constexpr std::uint32_t return_type_mask = 0x3FFF0000;    ///< DAT_TYPE_MASK
inline constexpr std::uint32_t return_subtype_mask = 0x0000FFFF; ///< DAT_SUBTYPE_MASK

/// Bits 15-0 of a DAT_RETURN word. Names are those of the C header without DAT_, INVALID_ and INVALID_STATE_.
enum class return_subtype : std::uint16_t {
  none = 0,
  interrupted = 1, // of abort

  resource_memory = 2, // of insufficient_resources
  resource_device,
  resource_tep,
  resource_tevd,
  resource_protection_domain,
  resource_memory_region,
  resource_error_handler,
  resource_credits,
  resource_srq,

  handle_ia = 11, // of invalid_handle
  handle_ep,
  handle_lmr,
  handle_rmr,
  handle_pz,
  handle_psp,
  handle_rsp,
  handle_cr,
  handle_cno,
  handle_evd_cr,
  handle_evd_request,
  handle_evd_recv,
  handle_evd_conn,
  handle_evd_async,
  handle_srq,
  handle_csp,
  handle1,
  handle2,
  handle3,
  handle4,
  handle5,
  handle6,
  handle7,
  handle8,
  handle9,
  handle10,

  arg1 = 37, // of invalid_parameter: position in the C signature
  arg2,
  arg3,
  arg4,
  arg5,
  arg6,
  arg7,
  arg8,
  arg9,
  arg10,

  ep_unconnected = 47, // of invalid_state
  ep_actconnpending,
  ep_passconnpending,
  ep_tentconnpending,
  ep_connected,
  ep_disconnected,
  ep_reserved,
  ep_complpending,
  ep_discpending,
  ep_providercontrol,
  ep_notready,
  ep_recv_watermark,
  ep_pz,
  ep_evd_request,
  ep_evd_recv,
  ep_evd_connect,
  ep_unconfigured,
  ep_unconfreserved,
  ep_unconfpassive,
  ep_unconftentative,
  cno_in_use = 67,
  cno_dead,
  evd_open = 69,
  evd_enabled,
  evd_disabled,
  evd_waitable,
  evd_unwaitable,
  evd_in_use,
  evd_config_notify,
  evd_config_solicited,
  evd_config_threshold,
  evd_waiter,
  evd_async,
  ia_in_use = 80,
  lmr_in_use,
  lmr_free,
  pz_in_use,
  pz_free,
  srq_operational,
  srq_error,
  srq_in_use,

  privileges_read = 88, // of privileges_violation
  privileges_write,
  privileges_rdma_read,
  privileges_rdma_write,

  protection_read = 92, // of protection_violation
  protection_write,
  protection_rdma_read,
  protection_rdma_write,

  address_unsupported = 96, // of invalid_address
  address_unreachable,
  address_malformed,

  name_not_registered = 99, // of provider_not_found
  major_not_found,
  minor_not_found,
  thread_safety_not_found,
};

/// The kinds of DAT objects, to name the object of a call that failed.
enum class object_kind : std::uint8_t { none, ia, pz, lmr, rmr, srq, evd, cno, psp, rsp, csp, cr, ep };

/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(return_class) noexcept;
[[nodiscard]] constexpr std::string_view to_string(return_type) noexcept;
[[nodiscard]] constexpr std::string_view to_string(return_subtype) noexcept;
[[nodiscard]] constexpr std::string_view to_string(object_kind) noexcept;

/// The parts of a DAT_RETURN word (DAT_GET_TYPE, DAT_GET_SUBTYPE, DAT_IS_WARNING).
[[nodiscard]] constexpr return_class class_of(std::uint32_t word) noexcept {
  return static_cast<return_class>(word & return_class_mask);
}
[[nodiscard]] constexpr return_type type_of(std::uint32_t word) noexcept {
  return static_cast<return_type>(word & return_type_mask);
}
[[nodiscard]] constexpr return_subtype subtype_of(std::uint32_t word) noexcept {
  return static_cast<return_subtype>(word & return_subtype_mask);
}
[[nodiscard]] constexpr bool is_warning(std::uint32_t word) noexcept {
  return (word & static_cast<std::uint32_t>(return_class::warning)) != 0;
}

/// Whether the specification allows this subtype with this type. `none` is allowed with every type.
[[nodiscard]] constexpr bool valid_pair(return_type, return_subtype) noexcept;

class error;
namespace detail {
void log_error(error& e) noexcept;
}

/// One failure: its DAT return word, the call and the object, and the system function with its errno.
///
/// 48 bytes, trivially copyable and destructible; creating and copying one never allocates. All its strings must have
/// static storage duration: it keeps the pointers only, except for the text of quote(). The functions that add to an
/// error return a copy:
///
///     error(return_type::invalid_state, return_subtype::ep_connected)
///         .at("ep.post(send)", object_kind::ep, qp_num).from("ibv_post_send", errno_value).index(3);
///
/// Thread safety: distinct objects are safe; reading one object from several threads is safe.
class error {
public:
  /// Leaves every member without a value, so that the success path of expected<void> does not pay for clearing an error
  /// that is never read. Assign before use.
  constexpr error() noexcept {} // NOLINT(modernize-use-equals-default): `= default` would let error{} clear 48 bytes

  /// \param type the kind of failure  \param subtype its detail; valid_pair(type, subtype) should hold
  constexpr error(return_type type, return_subtype subtype = return_subtype::none) noexcept
      : type_{type},
        subtype_{subtype},
        object_{object_kind::none},
        quoted_{0},
        facts_{},
        call_{nullptr},
        hint_{nullptr} {}

  /// Names the dat call and its object. `call` is a literal as a user would write it: "pz.create_ep".
  [[nodiscard]] constexpr error at(const char* call, object_kind object = object_kind::none,
                                   std::uint32_t object_id = 0) const noexcept {
    error copy = *this;
    copy.call_ = call;
    copy.object_ = detail::trace_build && is_logged() ? logged(object) : object;
    if (quoted_ == 0) copy.facts_.object_id = object_id;
    return copy;
  }

  /// Names the system call ("ibv_reg_mr") that failed, and its errno. Some drivers return a negated errno (siw:
  /// -EINVAL of ibv_post_recv); both forms mean the same.
  [[nodiscard]] constexpr error from(const char* verb, int sys_errno) const noexcept {
    error copy = unquoted();
    copy.facts_.verb = verb;
    copy.facts_.sys_errno = sys_errno < 0 ? -sys_errno : sys_errno;
    return copy;
  }

  /// Sets, for calls that take several operations, the number of operations before the one that failed.
  [[nodiscard]] constexpr error index(std::uint32_t taken) const noexcept {
    error copy = unquoted();
    copy.facts_.index = taken;
    return copy;
  }

  /// Copies the text that could not be parsed, as far as there is room: message() quotes it. The text takes the place
  /// of object_id(), sys_errno(), verb() and index(); from() and index() remove it.
  [[nodiscard]] constexpr error quote(std::string_view text) const noexcept {
    error copy = *this;
    quotation room{};
    for (std::size_t i = 0; i < room.text.size() && i < text.size(); ++i) room.text[i] = text[i];
    copy.quotation_ = room;
    copy.quoted_ = static_cast<std::uint8_t>(text.size() <= quote_capacity ? text.size() + 1 : quote_capacity + 2);
    return copy;
  }

  /// A remedy in place of the one that message() would choose. A literal of one or more whole sentences.
  [[nodiscard]] constexpr error hint(const char* remedy) const noexcept {
    error copy = *this;
    copy.hint_ = remedy;
    return copy;
  }

  [[nodiscard]] constexpr return_type type() const noexcept { return type_; }
  [[nodiscard]] constexpr return_subtype subtype() const noexcept { return subtype_; }

  /// The 32-bit DAT_RETURN word, class error included.
  [[nodiscard]] constexpr std::uint32_t value() const noexcept {
    return static_cast<std::uint32_t>(return_class::error) | static_cast<std::uint32_t>(type_) |
           static_cast<std::uint32_t>(subtype_);
  }

  /// The errno of the failed system call; 0 when dat itself refused.
  [[nodiscard]] constexpr int sys_errno() const noexcept { return facts().sys_errno; }
  /// The dat call, as a user writes it; empty when not recorded.
  [[nodiscard]] constexpr std::string_view call() const noexcept { return text(call_); }
  /// The libibverbs, librdmacm or system function that failed; empty when dat itself refused.
  [[nodiscard]] constexpr std::string_view verb() const noexcept { return text(facts().verb); }
  [[nodiscard]] constexpr object_kind object() const noexcept {
    return detail::trace_build ? static_cast<object_kind>(static_cast<unsigned>(object_) & ~logged_bit) : object_;
  }
  /// A number that distinguishes objects of one kind, e.g. an endpoint's QP number; 0 when not recorded.
  [[nodiscard]] constexpr std::uint32_t object_id() const noexcept { return facts().object_id; }
  [[nodiscard]] constexpr std::uint32_t index() const noexcept { return facts().index; }
  [[nodiscard]] constexpr std::string_view hint() const noexcept { return text(hint_); }
  /// The first characters, at most quote_capacity, of the text that could not be parsed; empty when not recorded. Valid
  /// as long as *this.
  [[nodiscard]] constexpr std::string_view quoted() const noexcept {
    if (quoted_ == 0) return {};
    return {quotation_.text.data(), quoted_ > quote_capacity ? quote_capacity : quoted_ - std::size_t{1}};
  }
  static constexpr std::size_t quote_capacity = 24; ///< characters of quoted()

  /// The meaning of type() as text: dat_strerror's major message. Static storage.
  [[nodiscard]] constexpr std::string_view major() const noexcept;
  /// The meaning of subtype() as text: dat_strerror's minor message. Static storage.
  [[nodiscard]] constexpr std::string_view minor() const noexcept;

  /// One line of text: the call, the object, the failure, the system call with its errno, and the remedy. Allocates the
  /// string; may read the process's resource limits. Thread-safe.
  [[nodiscard]] std::string message() const;

  /// This error as a std::error_code of dat::category(), without call, object and errno.
  [[nodiscard]] std::error_code code() const noexcept;

  /// Errors are equal when type and subtype are equal.
  [[nodiscard]] friend constexpr bool operator==(const error& a, const error& b) noexcept {
    return a.type_ == b.type_ && a.subtype_ == b.subtype_;
  }

private:
  // The log gets an error once: a build with DAT_TRACE marks it in its object, and copies are marked, too.
  friend void detail::log_error(error& e) noexcept;
  static constexpr unsigned logged_bit = 0x80;
  [[nodiscard]] constexpr bool is_logged() const noexcept { return (static_cast<unsigned>(object_) & logged_bit) != 0; }
  [[nodiscard]] static constexpr object_kind logged(object_kind object) noexcept {
    return static_cast<object_kind>(static_cast<unsigned>(object) | logged_bit);
  }

  static constexpr std::string_view text(const char* s) noexcept {
    return s != nullptr ? std::string_view(s) : std::string_view();
  }

  /// The members of the failure of a call. The failure to parse a text has `quotation_` in their place.
  struct facts_of_call {
    std::uint32_t object_id;
    std::int32_t sys_errno;
    std::uint32_t index;
    const char* verb;
  };
  struct quotation {
    std::array<char, quote_capacity> text;
  };
  [[nodiscard]] constexpr facts_of_call facts() const noexcept { return quoted_ == 0 ? facts_ : facts_of_call{}; }
  [[nodiscard]] constexpr error unquoted() const noexcept {
    error copy = *this;
    if (quoted_ != 0) copy.facts_ = {};
    copy.quoted_ = 0;
    return copy;
  }

  return_type type_;
  return_subtype subtype_;
  object_kind object_;
  // 0: facts_ is active. Otherwise quotation_ is, and this is the length of its text plus 1. A text that was cut has
  // quote_capacity + 2.
  std::uint8_t quoted_;
  union {
    facts_of_call facts_;
    quotation quotation_;
  };
  const char* call_;
  const char* hint_;
};

static_assert(sizeof(error) <= 48);
static_assert(std::is_trivially_copyable_v<error> && std::is_trivially_destructible_v<error>);

/// The category of dat's std::error_code: one object for a program and the shared objects it is linked with. Objects
/// loaded by dlopen share it if the program exports its symbols (-rdynamic). If not, only the comparison of two codes
/// is affected, because std::error_code compares addresses. Comparing with a return_type or std::errc always works.
///
/// The value of a code is type and subtype of the DAT_RETURN word without the class bits, so it is positive. A code
/// equals a return_type when its type does, and a std::errc when both mean the same (timeout_expired and
/// std::errc::timed_out, ...).
[[nodiscard, gnu::visibility("default")]] const std::error_category& category() noexcept;

[[nodiscard]] std::error_code make_error_code(const error&) noexcept;
[[nodiscard]] std::error_condition make_error_condition(return_type) noexcept;

}} // namespace dat::v0

template <>
struct std::is_error_condition_enum<dat::return_type> : std::true_type {};

#include <dat/detail/text/return_names.hpp> // The definitions of the constexpr functions.

#ifndef DAT_SEPARATE_COMPILATION
#include <dat/detail/text/error_text.ipp>
#endif
