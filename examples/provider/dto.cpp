// Data transfer operations.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"
#include "local_memory.hpp"

namespace provider {
namespace {

/// What an entry posts.
struct transfer {
  const char* call;
  DAT_EP_COUNTERS counter; ///< of the operations; the next one counts their bytes
  unsigned flags;          ///< the position of the completion flags among the arguments
};

/// Posts one operation of `bytes`, and counts it. A small request carries its data.
template <class Operation>
[[nodiscard, gnu::always_inline]] inline DAT_RETURN post_one(ep_object& e, Operation& operation, std::uint64_t bytes,
                                                             DAT_DTO_COOKIE cookie, const transfer& what) noexcept {
  e.counters.add(what.counter + 1, bytes);
  carry_small(operation, e, bytes);
  e.counters.add(what.counter);
  operation.cookie(dat::cookie(cookie.as_64));
  return word(e.ref.post(operation));
}

/// Posts an operation with the memory that triplets name. `make(memory, give)` calls `give(operation)`, or returns an
/// error.
template <dat::mem_priv P, class Make>
[[nodiscard, gnu::noinline]] DAT_RETURN
post_any(DAT_EP_HANDLE ep, handle::queue to, DAT_COUNT n, const DAT_LMR_TRIPLET* iov, dat::privileges<P> rights,
         DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags, const transfer& what, Make make) noexcept {
  const post_to e(ep, to);
  if (!e) return bad_handle(return_subtype::handle_ep, what.call);
  return with_local(e->ia, e.region(), n, iov, rights, what.call, [&](const auto& memory) {
    return make(memory, [&](auto operation) {
      if (!set_flags(operation, flags)) return bad_argument(what.flags, what.call);
      return post_one(*e, operation, memory.size_bytes(), cookie, what);
    });
  });
}
/// The same. The usual post, of one segment in the region of the last one and without flags, comes first and inline; it
/// keeps its arguments in registers. All others begin anew.
template <dat::mem_priv P, class Make>
[[nodiscard, gnu::always_inline]] inline DAT_RETURN
post(DAT_EP_HANDLE ep, handle::queue to, DAT_COUNT n, const DAT_LMR_TRIPLET* iov, dat::privileges<P> rights,
     DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags, const transfer& what, Make make) noexcept {
  const DAT_SEG_LENGTH bytes = n == 1 && iov ? iov->segment_length : 0;
  if (bytes != 0 && flags == DAT_COMPLETION_DEFAULT_FLAG) [[likely]]
    if (const post_to e(handle::called(ep), to); e && e.region()->key == iov->lmr_context) [[likely]]
      if (const auto memory = e.region()->part(iov->virtual_address, bytes, rights)) [[likely]]
        return make(
            memory.assume_value(), [&](auto operation) __attribute__((always_inline)) {
              return post_one(*e, operation, bytes, cookie, what);
            });
  return post_any(ep, to, n, iov, rights, cookie, flags, what, make);
}

} // namespace

DAT_RETURN ep_post_send(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE cookie,
                        DAT_COMPLETION_FLAGS flags) {
  static constexpr transfer what{"dat_ep_post_send", DCNT_EP_POST_SEND, 5};
  const auto send = [](const auto& memory, auto give) __attribute__((always_inline)) {
    return give(dat::send(memory));
  };
  return post(ep, handle::requests, n, iov, dat::local_read, cookie, flags, what, send);
}

DAT_RETURN ep_post_send_with_invalidate(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE cookie,
                                        DAT_COMPLETION_FLAGS flags, DAT_BOOLEAN invalidate,
                                        DAT_RMR_CONTEXT rmr_context) {
  if (invalidate == DAT_FALSE) return ep_post_send(ep, n, iov, cookie, flags);
  static constexpr transfer what{"dat_ep_post_send_with_invalidate", DCNT_EP_POST_SEND, 5};
  const auto send = [rmr_context](const auto& memory, auto give) __attribute__((always_inline)) {
    const auto window = dat::remote_segment<std::byte, dat::mem_priv::none>::make(0, 0, rmr_context).assume_value();
    return give(dat::send_with_invalidate(memory, window));
  };
  return post(ep, handle::requests, n, iov, dat::local_read, cookie, flags, what, send);
}

DAT_RETURN ep_post_recv(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE cookie,
                        DAT_COMPLETION_FLAGS flags) {
  static constexpr transfer what{"dat_ep_post_recv", DCNT_EP_POST_RECV, 5};
  const auto recv = [](const auto& memory, auto give) __attribute__((always_inline)) {
    return give(dat::recv(memory));
  };
  return post(ep, handle::receives, n, iov, dat::local_write, cookie, flags, what, recv);
}

DAT_RETURN ep_post_rdma_read(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE cookie,
                             const DAT_RMR_TRIPLET* remote, DAT_COMPLETION_FLAGS flags) {
  static constexpr transfer what{"dat_ep_post_rdma_read", DCNT_EP_POST_READ, 6};
  const auto read = [remote](const auto& memory, auto give) __attribute__((always_inline)) {
    const auto from = remote_segment(remote, dat::remote_read);
    return from ? give(dat::rdma_read(memory, from.assume_value())) : bad_argument(5, what.call);
  };
  return post(ep, handle::requests, n, iov, dat::local_write, cookie, flags, what, read);
}

DAT_RETURN ep_post_rdma_write(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE cookie,
                              const DAT_RMR_TRIPLET* remote, DAT_COMPLETION_FLAGS flags) {
  static constexpr transfer what{"dat_ep_post_rdma_write", DCNT_EP_POST_WRITE, 6};
  const auto write = [remote](const auto& memory, auto give) __attribute__((always_inline)) {
    const auto to = remote_segment(remote, dat::remote_write);
    return to ? give(dat::rdma_write(memory, to.assume_value())) : bad_argument(5, what.call);
  };
  return post(ep, handle::requests, n, iov, dat::local_read, cookie, flags, what, write);
}

DAT_RETURN ep_post_rdma_read_to_rmr(DAT_EP_HANDLE ep, const DAT_RMR_TRIPLET* local, DAT_DTO_COOKIE cookie,
                                    const DAT_RMR_TRIPLET* remote, DAT_COMPLETION_FLAGS flags) {
  const entry_call<ep_object> of(ep, "dat_ep_post_rdma_read_to_rmr");
  if (!of || of->is_datagram()) return of.bad_handle();
  if (!local) return of.bad_argument(2);
  const auto from = remote_segment(remote, dat::remote_read);
  if (!from) return of.bad_argument(4);
  // The search takes the adapter's lock, under which others wait for posts: so it comes before the post.
  const call_on<rmr_object> window(
      of->ia.find<rmr_object>([local](const rmr_object& r) { return r.rmr.is(local->rmr_context); }));
  if (!window) return of.refuse(return_type::privileges_violation);
  const post_to e(ep, handle::requests);
  if (!e) return of.bad_handle();
  const auto bound = window->rmr.query();
  if (!bound) return word(bound);
  const std::uint64_t base = bound.assume_value().binding ? bound.assume_value().binding->address : 0;
  const auto into = window->rmr.read_target<std::byte>(e->rc, local->virtual_address - base, local->segment_length);
  if (!into) return word(into);
  dat::rdma_read operation(into.assume_value(), from.assume_value());
  if (!set_flags(operation, flags)) return of.bad_argument(5);
  return post_one(*e, operation, local->segment_length, cookie, {of.name(), DCNT_EP_POST_READ, 5});
}

} // namespace provider
