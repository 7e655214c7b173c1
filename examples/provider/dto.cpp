// Data transfer operations.
// SPDX-License-Identifier: BSL-1.0
#include "entries.hpp"
#include "local_memory.hpp"

namespace provider {
namespace {

/// Counts and posts one operation of `bytes`. A small request carries its data.
template <class Operation>
[[nodiscard, gnu::always_inline]] inline DAT_RETURN post_one(ep_object& e, Operation& operation, std::uint64_t bytes,
                                                             DAT_DTO_COOKIE cookie, DAT_EP_COUNTERS counter) noexcept {
  e.counters.add(counter);
  e.counters.add(counter + 1, bytes); // each counter of operations is followed by that of their bytes
  carry_small(operation, e, bytes);
  operation.cookie(dat::cookie(cookie.as_64));
  return word(e.ref.post(operation));
}

/// The operations that the entries post, each with the name and the counter of its entry, its queue, and the rights
/// that it needs to the memory. `flags` is the position of the completion flags among the arguments. `make(memory,
/// give)` passes the operation to `give`, or returns an error.
struct request {
  static constexpr auto queue = handle::requests;
  static constexpr auto rights = dat::local_read;
  static constexpr unsigned flags = 5;
};
struct send : request {
  static constexpr const char* call = "dat_ep_post_send";
  static constexpr auto counter = DCNT_EP_POST_SEND;
  [[gnu::always_inline]] auto make(const auto& memory, auto give) const noexcept { return give(dat::send(memory)); }
};
struct send_with_invalidate : request {
  static constexpr const char* call = "dat_ep_post_send_with_invalidate";
  static constexpr auto counter = DCNT_EP_POST_SEND;
  DAT_RMR_CONTEXT rmr_context;
  [[gnu::always_inline]] auto make(const auto& memory, auto give) const noexcept {
    const auto window = dat::remote_segment<std::byte, dat::mem_priv::none>::make(0, 0, rmr_context).assume_value();
    return give(dat::send_with_invalidate(memory, window));
  }
};
struct recv : request {
  static constexpr const char* call = "dat_ep_post_recv";
  static constexpr auto counter = DCNT_EP_POST_RECV;
  static constexpr auto queue = handle::receives;
  static constexpr auto rights = dat::local_write;
  [[gnu::always_inline]] auto make(const auto& memory, auto give) const noexcept { return give(dat::recv(memory)); }
};
struct rdma_read : request {
  static constexpr const char* call = "dat_ep_post_rdma_read";
  static constexpr auto counter = DCNT_EP_POST_READ;
  static constexpr auto rights = dat::local_write;
  static constexpr unsigned flags = 6;
  const DAT_RMR_TRIPLET* remote;
  [[gnu::always_inline]] auto make(const auto& memory, auto give) const noexcept {
    const auto from = remote_segment(remote, dat::remote_read);
    return from ? give(dat::rdma_read(memory, from.assume_value())) : bad_argument(5, call);
  }
};
struct rdma_write : request {
  static constexpr const char* call = "dat_ep_post_rdma_write";
  static constexpr auto counter = DCNT_EP_POST_WRITE;
  static constexpr unsigned flags = 6;
  const DAT_RMR_TRIPLET* remote;
  [[gnu::always_inline]] auto make(const auto& memory, auto give) const noexcept {
    const auto to = remote_segment(remote, dat::remote_write);
    return to ? give(dat::rdma_write(memory, to.assume_value())) : bad_argument(5, call);
  }
};

/// Posts an operation with the memory that triplets name.
template <class What>
[[nodiscard, gnu::noinline]] DAT_RETURN post_any(DAT_EP_HANDLE ep, DAT_COUNT n, const DAT_LMR_TRIPLET* iov,
                                                 DAT_DTO_COOKIE cookie, What what,
                                                 DAT_COMPLETION_FLAGS flags) noexcept {
  const post_to e(ep, what.queue);
  if (!e) return bad_handle(return_subtype::handle_ep, what.call);
  return with_local(e->ia, e.region(), n, iov, what.rights, what.call, [&](const auto& memory) {
    return what.make(memory, [&](auto operation) {
      if (!set_flags(operation, flags)) return bad_argument(what.flags, what.call);
      return post_one(*e, operation, memory.size_bytes(), cookie, what.counter);
    });
  });
}
/// The same. The usual post, of one segment in the region of the last one and without flags, comes first and inline; it
/// keeps its arguments in registers. All others begin anew.
template <class What>
[[nodiscard, gnu::always_inline]] inline DAT_RETURN post(DAT_EP_HANDLE ep, DAT_COUNT n, const DAT_LMR_TRIPLET* iov,
                                                         DAT_DTO_COOKIE cookie, What what,
                                                         DAT_COMPLETION_FLAGS flags) noexcept {
  const DAT_SEG_LENGTH bytes = n == 1 && iov ? iov->segment_length : 0;
  if (bytes != 0 && flags == DAT_COMPLETION_DEFAULT_FLAG) [[likely]]
    if (const post_to e(handle::called(ep), what.queue); e && e.region()->key == iov->lmr_context) [[likely]]
      if (const auto memory = e.region()->part(iov->virtual_address, bytes, what.rights)) [[likely]]
        return what.make(
            memory.assume_value(), [&](auto operation) __attribute__((always_inline)) {
              return post_one(*e, operation, bytes, cookie, what.counter);
            });
  return post_any(ep, n, iov, cookie, what, flags);
}

[[nodiscard]] DAT_RETURN read_to_rmr(const entry_call<ep_object>& of, const DAT_RMR_TRIPLET* local,
                                     DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET* remote,
                                     DAT_COMPLETION_FLAGS flags) noexcept {
  if (of->is_datagram()) return of.bad_handle();
  if (!local) return of.bad_argument(2);
  const auto from = remote_segment(remote, dat::remote_read);
  if (!from) return of.bad_argument(4);
  // The search takes the adapter's lock, under which others wait for posts: so it comes before the post.
  const call_on<rmr_object> window(
      of->ia.find<rmr_object>([local](const rmr_object& r) { return r.rmr.is(local->rmr_context); }));
  if (!window) return of.refuse(return_type::privileges_violation);
  const post_to e(of->self, handle::requests);
  if (!e) return of.bad_handle();
  const auto bound = window->rmr.query();
  if (!bound) return word(bound);
  const std::uint64_t base = bound.assume_value().binding ? bound.assume_value().binding->address : 0;
  const auto into = window->rmr.read_target<std::byte>(e->rc, local->virtual_address - base, local->segment_length);
  if (!into) return word(into);
  dat::rdma_read operation(into.assume_value(), from.assume_value());
  if (!set_flags(operation, flags)) return of.bad_argument(5);
  return post_one(*e, operation, local->segment_length, cookie, DCNT_EP_POST_READ);
}

/// The entry of an operation that only has memory of this side.
template <class What>
DAT_RETURN post_entry(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE cookie,
                      DAT_COMPLETION_FLAGS flags) {
  return post(ep, n, iov, cookie, What(), flags);
}
/// That of an operation with memory of the peer.
template <class What>
DAT_RETURN rdma_entry(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE cookie,
                      const DAT_RMR_TRIPLET* remote, DAT_COMPLETION_FLAGS flags) {
  return post(ep, n, iov, cookie, What{{}, remote}, flags);
}
DAT_RETURN post_invalidating(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET* iov, DAT_DTO_COOKIE cookie,
                             DAT_COMPLETION_FLAGS flags, DAT_BOOLEAN invalidate, DAT_RMR_CONTEXT rmr_context) {
  if (invalidate == DAT_FALSE) return post_entry<send>(ep, n, iov, cookie, flags);
  return post(ep, n, iov, cookie, send_with_invalidate{{}, rmr_context}, flags);
}

} // namespace

void add_dto_entries(DAT_PROVIDER& table) noexcept {
  table.ep_post_send_func = post_entry<send>;
  table.ep_post_send_with_invalidate_func = post_invalidating;
  table.ep_post_recv_func = post_entry<recv>;
  table.ep_post_rdma_read_func = rdma_entry<rdma_read>;
  table.ep_post_rdma_write_func = rdma_entry<rdma_write>;
  table.ep_post_rdma_read_to_rmr_func = entry<ep_object, "dat_ep_post_rdma_read_to_rmr", read_to_rmr>();
}

} // namespace provider
