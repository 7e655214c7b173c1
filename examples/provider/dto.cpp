// Data transfer operations.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"
#include "local_memory.hpp"

namespace provider {
namespace {

/// Posts one operation with completion flags. `position`: of the flags among the arguments.
template <class Operation>
[[nodiscard, gnu::noinline]] DAT_RETURN post_with_flags(ep_object& e, Operation operation, DAT_COMPLETION_FLAGS flags,
                                                        unsigned position, const char* call) noexcept {
  return set_flags(operation, flags) ? word(e.ref.post(operation)) : bad_argument(position, call);
}

/// Posts one operation of `bytes`, and counts it. A small request carries its data.
template <class Operation>
[[nodiscard, gnu::always_inline]] inline DAT_RETURN
post_one(ep_object& e, Operation operation, DAT_EP_COUNTERS counter, std::uint64_t bytes, DAT_DTO_COOKIE cookie,
         DAT_COMPLETION_FLAGS flags, unsigned position, const char* call) noexcept {
  e.counters.add(counter);
  e.counters.add(counter + 1, bytes);
  operation.cookie(dat::cookie(cookie.as_64));
  carry_small(operation, e, bytes);
  if (flags != DAT_COMPLETION_DEFAULT_FLAG) [[unlikely]]
    return post_with_flags(e, operation, flags, position, call);
  return word(e.ref.post(operation));
}

} // namespace

DAT_RETURN ep_post_send(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE user_cookie,
                        DAT_COMPLETION_FLAGS completion_flags) {
  static constexpr const char* call = "dat_ep_post_send";
  const auto post = [](const auto& memory, ep_object* e, DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags) {
    dat::send operation(memory);
    return post_one(*e, operation, DCNT_EP_POST_SEND, memory.size_bytes(), cookie, flags, 5, call);
  };
  const post_to<ep_object> e(ep, &handle::requests);
  if (!e) return bad_handle(return_subtype::handle_ep, call);
  return with_local(e->ia, n, iov, dat::local_read, call, post, e.get(), user_cookie, completion_flags);
}

DAT_RETURN ep_post_send_with_invalidate(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE user_cookie,
                                        DAT_COMPLETION_FLAGS completion_flags, DAT_BOOLEAN invalidate,
                                        DAT_RMR_CONTEXT rmr_context) {
  static constexpr const char* call = "dat_ep_post_send_with_invalidate";
  const auto post = [](const auto& memory, ep_object* e, DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags,
                       DAT_RMR_CONTEXT context) {
    const auto window = dat::remote_segment<std::byte, dat::mem_priv::none>::make(0, 0, context).assume_value();
    dat::send_with_invalidate operation(memory, window);
    return post_one(*e, operation, DCNT_EP_POST_SEND, memory.size_bytes(), cookie, flags, 5, call);
  };
  if (invalidate == DAT_FALSE) return ep_post_send(ep, n, iov, user_cookie, completion_flags);
  const post_to<ep_object> e(ep, &handle::requests);
  if (!e) return bad_handle(return_subtype::handle_ep, call);
  return with_local(e->ia, n, iov, dat::local_read, call, post, e.get(), user_cookie, completion_flags, rmr_context);
}

DAT_RETURN ep_post_recv(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE user_cookie,
                        DAT_COMPLETION_FLAGS completion_flags) {
  static constexpr const char* call = "dat_ep_post_recv";
  const auto post = [](const auto& memory, ep_object* e, DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags) {
    dat::recv operation(memory);
    return post_one(*e, operation, DCNT_EP_POST_RECV, memory.size_bytes(), cookie, flags, 5, call);
  };
  const post_to<ep_object> e(ep, &handle::receives);
  if (!e) return bad_handle(return_subtype::handle_ep, call);
  return with_local(e->ia, n, iov, dat::local_write, call, post, e.get(), user_cookie, completion_flags);
}

DAT_RETURN ep_post_rdma_read(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE user_cookie,
                             const DAT_RMR_TRIPLET* remote_buffer, DAT_COMPLETION_FLAGS completion_flags) {
  static constexpr const char* call = "dat_ep_post_rdma_read";
  const auto post = [](const auto& memory, ep_object* e, DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags,
                       const DAT_RMR_TRIPLET* remote) {
    const auto from = remote_segment(*remote, dat::remote_read);
    if (!from) return bad_argument(5, call);
    dat::rdma_read operation(memory, from.assume_value());
    return post_one(*e, operation, DCNT_EP_POST_READ, memory.size_bytes(), cookie, flags, 6, call);
  };
  const post_to<ep_object> e(ep, &handle::requests);
  if (!e) return bad_handle(return_subtype::handle_ep, call);
  if (!remote_buffer) return bad_argument(5, call);
  return with_local(e->ia, n, iov, dat::local_write, call, post, e.get(), user_cookie, completion_flags, remote_buffer);
}

DAT_RETURN ep_post_rdma_write(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE user_cookie,
                              const DAT_RMR_TRIPLET* remote_buffer, DAT_COMPLETION_FLAGS completion_flags) {
  static constexpr const char* call = "dat_ep_post_rdma_write";
  const auto post = [](const auto& memory, ep_object* e, DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags,
                       const DAT_RMR_TRIPLET* remote) {
    const auto to = remote_segment(*remote, dat::remote_write);
    if (!to) return bad_argument(5, call);
    dat::rdma_write operation(memory, to.assume_value());
    return post_one(*e, operation, DCNT_EP_POST_WRITE, memory.size_bytes(), cookie, flags, 6, call);
  };
  const post_to<ep_object> e(ep, &handle::requests);
  if (!e) return bad_handle(return_subtype::handle_ep, call);
  if (!remote_buffer) return bad_argument(5, call);
  return with_local(e->ia, n, iov, dat::local_read, call, post, e.get(), user_cookie, completion_flags, remote_buffer);
}

DAT_RETURN ep_post_rdma_read_to_rmr(DAT_EP_HANDLE ep, const DAT_RMR_TRIPLET* local, DAT_DTO_COOKIE cookie,
                                    const DAT_RMR_TRIPLET* remote, DAT_COMPLETION_FLAGS flags) {
  static constexpr const char* call = "dat_ep_post_rdma_read_to_rmr";
  const post_to<ep_object> e(ep, &handle::requests);
  if (!e || e->is_datagram()) return bad_handle(return_subtype::handle_ep, call);
  if (!local) return bad_argument(2, call);
  if (!remote) return bad_argument(4, call);
  const auto from = remote_segment(*remote, dat::remote_read);
  if (!from) return bad_argument(4, call);
  const call_on<rmr_object> window(
      e->ia.find<rmr_object>([local](const rmr_object& r) { return r.rmr.is(local->rmr_context); }));
  if (!window) return refuse(return_type::privileges_violation, return_subtype::none, call);
  const auto bound = window->rmr.query();
  if (!bound) return word(bound);
  const std::uint64_t base = bound.assume_value().binding ? bound.assume_value().binding->address : 0;
  const auto into = window->rmr.read_target<std::byte>(e->rc, local->virtual_address - base, local->segment_length);
  if (!into) return word(into);
  dat::rdma_read operation(into.assume_value(), from.assume_value());
  return post_one(*e, operation, DCNT_EP_POST_READ, local->segment_length, cookie, flags, 5, call);
}

} // namespace provider
