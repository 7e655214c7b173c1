// Errors as std::error_code, and the DAT error of an errno.
// SPDX-License-Identifier: BSL-1.0
#include <dat/error.hpp>

#include <dat/detail/text/errno.hpp>

#include <support/catch.hpp>

#include <array>
#include <utility>

using dat::error;
using dat::return_subtype;
using dat::return_type;

TEST_CASE("an error is a std::error_code of dat's category") {
  const error e(return_type::invalid_state, return_subtype::ep_connected);
  const std::error_code code = make_error_code(e);
  CHECK(code == e.code());
  CHECK(code.category() == dat::category());
  CHECK(std::string_view(dat::category().name()) == "dat");
  CHECK(code.value() == 0x00070033);
  CHECK(code.message() == "the object is not in a state that allows this: the endpoint is connected");
  CHECK(static_cast<bool>(code));
  CHECK(error(return_type::not_implemented).code().value() > 0);
}

TEST_CASE("a code equals its return type whatever the subtype, and no other type") {
  const std::error_code code = error(return_type::invalid_state, return_subtype::ep_connected).code();
  CHECK(code == return_type::invalid_state);
  CHECK(code != return_type::invalid_handle);
  const auto same = std::error_condition(code.value(), dat::category());
  const auto other = std::error_condition(error(return_type::invalid_state, return_subtype::ep_reserved).code().value(),
                                          dat::category());
  CHECK(code == same);
  CHECK(code != other);
}

TEST_CASE("a code equals the std::errc with the same meaning, and no other") {
  using T = return_type;
  using S = return_subtype;
  CHECK(error(T::timeout_expired).code() == std::errc::timed_out);
  CHECK(error(T::conn_qual_in_use).code() == std::errc::address_in_use);
  CHECK(error(T::port_in_use).code() == std::errc::address_in_use);
  CHECK(error(T::conn_qual_unavailable).code() == std::errc::address_not_available);
  CHECK(error(T::abort).code() == std::errc::operation_canceled);
  CHECK(error(T::invalid_handle).code() == std::errc::bad_file_descriptor);
  CHECK(error(T::invalid_parameter, S::arg3).code() == std::errc::invalid_argument);
  CHECK(error(T::length_error).code() == std::errc::message_size);
  CHECK(error(T::model_not_supported).code() == std::errc::not_supported);
  CHECK(error(T::not_implemented).code() == std::errc::not_supported);
  CHECK(error(T::provider_not_found).code() == std::errc::no_such_device);
  CHECK(error(T::privileges_violation).code() == std::errc::permission_denied);
  CHECK(error(T::protection_violation).code() == std::errc::operation_not_permitted);
  CHECK(error(T::queue_empty).code() == std::errc::resource_unavailable_try_again);
  CHECK(error(T::queue_full).code() == std::errc::no_buffer_space);
  CHECK(error(T::provider_already_registered).code() == std::errc::file_exists);
  CHECK(error(T::provider_in_use).code() == std::errc::device_or_resource_busy);
  CHECK(error(T::interrupted_call).code() == std::errc::interrupted);
  CHECK(error(T::comm_not_supported).code() == std::errc::protocol_not_supported);
  CHECK(error(T::insufficient_resources, S::resource_memory).code() == std::errc::not_enough_memory);
  CHECK(error(T::insufficient_resources, S::resource_memory_region).code() == std::errc::not_enough_memory);
  CHECK(error(T::insufficient_resources, S::resource_tep).code() == std::errc::no_buffer_space);
  CHECK(error(T::invalid_state, S::ep_connected).code() == std::errc::already_connected);
  CHECK(error(T::invalid_state, S::ep_unconnected).code() == std::errc::not_connected);
  CHECK(error(T::invalid_state, S::ep_disconnected).code() == std::errc::not_connected);
  CHECK(error(T::invalid_state, S::ep_actconnpending).code() == std::errc::connection_already_in_progress);
  CHECK(error(T::invalid_state, S::pz_in_use).code() == std::errc::device_or_resource_busy);
  CHECK(error(T::invalid_address, S::address_unreachable).code() == std::errc::host_unreachable);
  CHECK(error(T::invalid_address, S::address_unsupported).code() == std::errc::address_family_not_supported);
  CHECK(error(T::invalid_address, S::address_malformed).code() == std::errc::invalid_argument);

  CHECK(error(T::timeout_expired).code() != std::errc::address_in_use);
  CHECK(error(T::internal_error).code() != std::errc::invalid_argument);
  CHECK(error(T::internal_error).code() == T::internal_error);
}

TEST_CASE("an errno becomes the DAT error with the same meaning, and is kept", "[ERR-016][ERR-027]") {
  using T = return_type;
  constexpr std::array<std::pair<int, T>, 25> table{{
      {ENOMEM, T::insufficient_resources},
      {ENOSPC, T::insufficient_resources},
      {EMFILE, T::insufficient_resources},
      {ENFILE, T::insufficient_resources},
      {EAGAIN, T::insufficient_resources},
      {ENOBUFS, T::insufficient_resources},
      {EOPNOTSUPP, T::model_not_supported},
      {ENOSYS, T::model_not_supported},
      {524, T::model_not_supported}, // ENOTSUPP, which only the kernel defines
      {EADDRINUSE, T::conn_qual_in_use},
      {EADDRNOTAVAIL, T::conn_qual_in_use},
      {EBUSY, T::invalid_state},
      {EISCONN, T::invalid_state},
      {EALREADY, T::invalid_state},
      {ENOTCONN, T::invalid_state},
      {EFAULT, T::invalid_parameter},
      {EBADF, T::invalid_handle},
      {EACCES, T::privileges_violation},
      {EPERM, T::privileges_violation},
      {ENETUNREACH, T::invalid_address},
      {EHOSTUNREACH, T::invalid_address},
      {EINTR, T::insufficient_resources}, // only waits return interrupted_call
      {ETIMEDOUT, T::timeout_expired},
      {EIO, T::internal_error},
      {ENODEV, T::internal_error},
  }};
  for (const auto& [errnum, type] : table) {
    const error e = dat::detail::map_errno(errnum);
    CAPTURE(errnum, to_string(e.type()));
    CHECK(e.type() == type);
    CHECK(e.sys_errno() == errnum);
    CHECK(dat::valid_pair(e.type(), e.subtype()));
  }
  for (const int unknown : {523, 525}) CHECK(dat::detail::map_errno(unknown).type() == T::internal_error);
  CHECK(dat::detail::map_errno(-524).type() == T::model_not_supported);
  CHECK(dat::detail::map_errno(ENETUNREACH).subtype() == return_subtype::address_unreachable);
  for (int errnum = 1; errnum < 200; ++errnum) {
    CHECK(dat::detail::map_errno(errnum).type() != T::interrupted_call);
    CHECK(dat::detail::map_errno(errnum).type() != T::not_implemented);
  }
  SHOWS("ERR-030");
}

TEST_CASE("only an errno of exhaustion gets the resource that the call site names") {
  using dat::detail::map_errno;
  STATIC_REQUIRE(map_errno(ENOMEM, return_subtype::resource_tep).subtype() == return_subtype::resource_tep);
  STATIC_REQUIRE(map_errno(ENOSPC, return_subtype::resource_srq).subtype() == return_subtype::resource_srq);
  STATIC_REQUIRE(map_errno(ENOMEM).subtype() == return_subtype::none);
  STATIC_REQUIRE(map_errno(EINVAL, return_subtype::resource_tep).subtype() == return_subtype::none);
  STATIC_REQUIRE(map_errno(EBUSY, return_subtype::resource_tep).subtype() == return_subtype::none);
}

TEST_CASE("EINVAL is the caller's fault only where the call site says so", "[ERR-016]") {
  using dat::detail::map_errno;
  STATIC_REQUIRE(map_errno(EINVAL, return_subtype::none, true).type() == return_type::invalid_parameter);
  STATIC_REQUIRE(map_errno(EINVAL).type() == return_type::internal_error);
  STATIC_REQUIRE(map_errno(EIO, return_subtype::none, true).type() == return_type::internal_error);
}
