// Maps an errno of libibverbs, librdmacm or the system to the matching DAT error.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>

#include <dat/detail/text/kernel_errno.hpp>

#include <cerrno>

namespace dat { inline namespace v0 { namespace detail {

// `resource` is what the failed call allocates: the subtype of insufficient_resources. `callers_value`: EINVAL can only
// come from a value that the consumer chose; otherwise it is dat's own fault. The errno is kept; the caller adds
// .at(...) and names the function with .from(name, error.sys_errno()).
[[nodiscard]] constexpr error map_errno(int errnum, return_subtype resource = return_subtype::none,
                                        bool callers_value = false) noexcept {
  const auto mapped = [&]() -> error {
    switch (errnum < 0 ? -errnum : errnum) { // some drivers return a negated errno
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case EAGAIN:
    case EINTR: // only a wait is an interrupted call; any other may be called again
      return {return_type::insufficient_resources, resource};
    case EOPNOTSUPP:
    case kernel_enotsupp:
    case EPROTONOSUPPORT:
    case ENOSYS:
      return {return_type::model_not_supported};
    case EADDRINUSE:
    case EADDRNOTAVAIL:
      return {return_type::conn_qual_in_use};
    case EBUSY:
    case EISCONN:
    case EALREADY:
    case ENOTCONN:
      return {return_type::invalid_state};
    case EFAULT:
      return {return_type::invalid_parameter};
    case EINVAL:
      return {callers_value ? return_type::invalid_parameter : return_type::internal_error};
    case EBADF:
      return {return_type::invalid_handle};
    case EACCES:
    case EPERM:
      return {return_type::privileges_violation};
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case EAFNOSUPPORT:
      return {return_type::invalid_address, return_subtype::address_unreachable};
    case ETIMEDOUT:
      return {return_type::timeout_expired};
    default:
      return {return_type::internal_error};
    }
  };
  return mapped().from(nullptr, errnum);
}

}}} // namespace dat::v0::detail
