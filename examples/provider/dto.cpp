// Data transfer operations.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"
#include "local_memory.hpp"

namespace provider {
namespace {

/// Posts one operation. `position`: of the flags among the arguments.
template <class Operation>
[[nodiscard, gnu::always_inline]] inline DAT_RETURN post_one(ep_object& e, Operation& operation, DAT_DTO_COOKIE cookie,
                                                             DAT_COMPLETION_FLAGS flags, unsigned position,
                                                             const char* call) noexcept {
  if (!set_flags(operation, flags)) [[unlikely]]
    return bad_argument(position, call);
  operation.cookie(dat::cookie(cookie.as_64));
  return word(e.ref.post(operation));
}

} // namespace

DAT_RETURN ep_post_send(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE cookie,
                        DAT_COMPLETION_FLAGS flags) {
  static constexpr const char* call = "dat_ep_post_send";
  const post_to<ep_object> e(ep, &handle::requests);
  if (!e) return bad_handle(return_subtype::handle_ep, call);
  return with_local(e->ia, n, iov, dat::local_read, call, [=, &e = *e](const auto& memory) {
    dat::send operation(memory);
    e.counters.add(DCNT_EP_POST_SEND);
    e.counters.add(DCNT_EP_POST_SEND_DATA, memory.size_bytes());
    return post_one(e, operation, cookie, flags, 5, call);
  });
}

DAT_RETURN ep_post_send_with_invalidate(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE cookie,
                                        DAT_COMPLETION_FLAGS flags, DAT_BOOLEAN invalidate, DAT_RMR_CONTEXT context) {
  static constexpr const char* call = "dat_ep_post_send_with_invalidate";
  if (invalidate == DAT_FALSE) return ep_post_send(ep, n, iov, cookie, flags);
  const post_to<ep_object> e(ep, &handle::requests);
  if (!e) return bad_handle(return_subtype::handle_ep, call);
  const auto window = dat::remote_segment<std::byte, dat::mem_priv::none>::make(0, 0, context).assume_value();
  return with_local(e->ia, n, iov, dat::local_read, call, [=, &e = *e](const auto& memory) {
    dat::send_with_invalidate operation(memory, window);
    e.counters.add(DCNT_EP_POST_SEND);
    e.counters.add(DCNT_EP_POST_SEND_DATA, memory.size_bytes());
    return post_one(e, operation, cookie, flags, 5, call);
  });
}

DAT_RETURN ep_post_recv(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE cookie,
                        DAT_COMPLETION_FLAGS flags) {
  static constexpr const char* call = "dat_ep_post_recv";
  const post_to<ep_object> e(ep, &handle::receives);
  if (!e) return bad_handle(return_subtype::handle_ep, call);
  return with_local(e->ia, n, iov, dat::local_write, call, [=, &e = *e](const auto& memory) {
    dat::recv operation(memory);
    e.counters.add(DCNT_EP_POST_RECV);
    e.counters.add(DCNT_EP_POST_RECV_DATA, memory.size_bytes());
    return post_one(e, operation, cookie, flags, 5, call);
  });
}

DAT_RETURN ep_post_rdma_read(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE cookie,
                             const DAT_RMR_TRIPLET* remote, DAT_COMPLETION_FLAGS flags) {
  static constexpr const char* call = "dat_ep_post_rdma_read";
  const post_to<ep_object> e(ep, &handle::requests);
  if (!e) return bad_handle(return_subtype::handle_ep, call);
  if (!remote) return bad_argument(5, call);
  const auto from = remote_segment(*remote, dat::remote_read);
  if (!from) return bad_argument(5, call);
  const auto source = from.assume_value();
  return with_local(e->ia, n, iov, dat::local_write, call, [=, &e = *e](const auto& memory) {
    dat::rdma_read operation(memory, source);
    e.counters.add(DCNT_EP_POST_READ);
    e.counters.add(DCNT_EP_POST_READ_DATA, memory.size_bytes());
    return post_one(e, operation, cookie, flags, 6, call);
  });
}

DAT_RETURN ep_post_rdma_write(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE cookie,
                              const DAT_RMR_TRIPLET* remote, DAT_COMPLETION_FLAGS flags) {
  static constexpr const char* call = "dat_ep_post_rdma_write";
  const post_to<ep_object> e(ep, &handle::requests);
  if (!e) return bad_handle(return_subtype::handle_ep, call);
  if (!remote) return bad_argument(5, call);
  const auto to = remote_segment(*remote, dat::remote_write);
  if (!to) return bad_argument(5, call);
  const auto target = to.assume_value();
  return with_local(e->ia, n, iov, dat::local_read, call, [=, &e = *e](const auto& memory) {
    dat::rdma_write operation(memory, target);
    e.counters.add(DCNT_EP_POST_WRITE);
    e.counters.add(DCNT_EP_POST_WRITE_DATA, memory.size_bytes());
    return post_one(e, operation, cookie, flags, 6, call);
  });
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
  e->counters.add(DCNT_EP_POST_READ);
  return post_one(*e, operation, cookie, flags, 5, call);
}

} // namespace provider
