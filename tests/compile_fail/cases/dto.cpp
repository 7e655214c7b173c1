// <dat/dto.hpp>, <dat/iov.hpp>, <dat/batch.hpp>: operations on memory that lacks a right or ends too early.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>

#include <cstdint>
#include <span>

using dat::mem_priv;
template <mem_priv P>
using local = dat::local_segment<char, P>;
template <mem_priv P>
using remote = dat::remote_segment<char, P>;
template <mem_priv P>
using region = dat::lmr<char, P>;
constexpr auto both = mem_priv::local_read | mem_priv::local_write;
constexpr auto shared = both | mem_priv::remote_read | mem_priv::remote_write;

//! case: a send from memory that the adapter may not read
//! error: dat: send needs memory registered with dat::local_read
//! tags: [DTO-096][DTO-084][REQ-139]
#ifdef DAT_EXPECT_FAIL
auto bad_send(local<mem_priv::local_write> s) { return dat::send{s}; }
#else
auto good_send(local<mem_priv::local_read> s) { return dat::send{s}; }
#endif

//! case: a send of a list without local_read
//! error: dat: send needs memory registered with dat::local_read
//! tags: [DTO-096]
#ifdef DAT_EXPECT_FAIL
auto bad_list(local<mem_priv::local_write> s) { return dat::send{dat::iov{s, s}}; }
#else
auto good_list(local<both> s) { return dat::send{dat::iov{s, s}}; }
#endif

//! case: a list in which one segment lacks the right
//! error: dat: send needs memory registered with dat::local_read
//! tags: [DTO-096]
#ifdef DAT_EXPECT_FAIL
auto bad_mixed(local<both> a, local<mem_priv::local_write> b) { return dat::send{dat::iov{a, b}}; }
#else
auto good_mixed(local<both> a, local<mem_priv::local_read> b) { return dat::send{dat::iov{a, b}}; }
#endif

//! case: a receive into memory that the adapter may not write
//! error: dat: recv needs memory registered with dat::local_write
//! tags: [DTO-084][DTO-124][REQ-139]
#ifdef DAT_EXPECT_FAIL
auto bad_recv(local<mem_priv::local_read> s) { return dat::recv{s}; }
#else
auto good_recv(local<mem_priv::local_write> s) { return dat::recv{s}; }
#endif

//! case: a receive into a list that the adapter may not write
//! error: dat: recv needs memory registered with dat::local_write
//! tags: [DTO-084]
#ifdef DAT_EXPECT_FAIL
auto bad_recv_list(local<both> a, local<mem_priv::local_read> b) { return dat::recv{dat::iov{a, b}}; }
#else
auto good_recv_list(local<both> a, local<mem_priv::local_write> b) { return dat::recv{dat::iov{a, b}}; }
#endif

//! case: an RDMA write to memory that peers may only read
//! error: dat: rdma_write needs a remote segment with dat::remote_write
//! tags: [DTO-151]
#ifdef DAT_EXPECT_FAIL
auto bad_write(local<both> s, remote<mem_priv::remote_read> r) { return dat::rdma_write{s, r}; }
#else
auto good_write(local<both> s, remote<mem_priv::remote_write> r) { return dat::rdma_write{s, r}; }
#endif

//! case: an RDMA write to two remote segments
//! error: dat: rdma_write takes local memory first, and then a remote segment
//! tags: [DTO-008][REQ-096]
#ifdef DAT_EXPECT_FAIL
auto two_targets(local<both> s, remote<mem_priv::remote_write> (&r)[2]) { return dat::rdma_write{s, r}; }
#else
auto one_target(local<both> s, remote<mem_priv::remote_write> (&r)[2]) { return dat::rdma_write{s, r[0]}; }
#endif

//! case: an RDMA read of two remote segments
//! error: dat: rdma_read takes local memory first, and then a remote segment
//! tags: [DTO-008][REQ-096]
#ifdef DAT_EXPECT_FAIL
auto two_sources(local<both> s, remote<mem_priv::remote_read> (&r)[2]) { return dat::rdma_read{s, r}; }
#else
auto one_source(local<both> s, remote<mem_priv::remote_read> (&r)[2]) { return dat::rdma_read{s, r[0]}; }
#endif

//! case: an RDMA write from memory that the adapter may not read
//! error: dat: rdma_write reads memory registered with dat::local_read
//! tags: [DTO-151][DTO-084]
#ifdef DAT_EXPECT_FAIL
auto bad_source(local<mem_priv::local_write> s, remote<mem_priv::remote_write> r) { return dat::rdma_write{s, r}; }
#else
auto good_source(local<mem_priv::local_read> s, remote<mem_priv::remote_write> r) { return dat::rdma_write{s, r}; }
#endif

//! case: an RDMA write of a list to memory that peers may only read
//! error: dat: rdma_write needs a remote segment with dat::remote_write
//! tags: [DTO-151]
#ifdef DAT_EXPECT_FAIL
auto bad_list_write(local<both> s, remote<mem_priv::remote_read> r) { return dat::rdma_write{dat::iov{s, s}, r}; }
#else
auto good_list_write(local<both> s, remote<mem_priv::remote_write> r) { return dat::rdma_write{dat::iov{s, s}, r}; }
#endif

//! case: an RDMA read of memory that peers may only write
//! error: dat: rdma_read needs a remote segment with dat::remote_read
//! tags: [DTO-135]
#ifdef DAT_EXPECT_FAIL
auto bad_read(local<both> s, remote<mem_priv::remote_write> r) { return dat::rdma_read{s, r}; }
#else
auto good_read(local<both> s, remote<mem_priv::remote_read> r) { return dat::rdma_read{s, r}; }
#endif

//! case: an RDMA read into memory that the adapter may not write
//! error: dat: rdma_read writes memory registered with dat::local_write
//! tags: [DTO-135][DTO-084]
#ifdef DAT_EXPECT_FAIL
auto bad_sink(local<mem_priv::local_read> s, remote<mem_priv::remote_read> r) { return dat::rdma_read{s, r}; }
#else
auto good_sink(local<mem_priv::local_write> s, remote<mem_priv::remote_read> r) { return dat::rdma_read{s, r}; }
#endif

//! case: an RDMA read with its arguments exchanged
//! error: dat: rdma_read takes local memory first, an lmr, a segment or a dat::iov, and then a remote segment
#ifdef DAT_EXPECT_FAIL
auto exchanged(local<both> s, remote<mem_priv::remote_read> r) { return dat::rdma_read{r, s}; }
#else
auto in_order(local<both> s, remote<mem_priv::remote_read> r) { return dat::rdma_read{s, r}; }
#endif

//! case: a send of memory that is not registered
//! error: dat: send takes an lmr, a segment or a dat::iov: register the memory first
#ifdef DAT_EXPECT_FAIL
auto unregistered(char (&text)[5]) { return dat::send{text}; }
#else
auto registered(region<both>& text) { return dat::send{text}; }
#endif

//! case: a receive into memory that is not registered
//! error: dat: recv takes an lmr, a segment or a dat::iov: register the memory first
#ifdef DAT_EXPECT_FAIL
auto unregistered_recv(char (&text)[5]) { return dat::recv{text}; }
#else
auto registered_recv(region<both>& text) { return dat::recv{text}; }
#endif

//! case: a receive of a number of segments and their address
//! error: dat: recv takes an lmr, a segment or a dat::iov: register the memory first
//! tags: [SRQ-074]
#ifdef DAT_EXPECT_FAIL
auto counted_recv(local<both>* segments) { return dat::recv{2, segments}; }
#else
auto listed_recv(local<both> s) { return dat::recv{dat::iov{s, s}}; }
#endif

//! case: a send of a temporary region
//! error: dat: the lmr must outlive the send
//! tags: [DTO-005]
#ifdef DAT_EXPECT_FAIL
auto dying_send(region<both> m) { return dat::send{std::move(m)}; }
#else
auto living_send(region<both>& m) { return dat::send{m}; }
#endif

//! case: a receive into a temporary region
//! error: dat: the lmr must outlive the recv
//! tags: [DTO-005]
#ifdef DAT_EXPECT_FAIL
auto dying_recv(region<both> m) { return dat::recv{std::move(m)}; }
#else
auto living_recv(region<both>& m) { return dat::recv{m}; }
#endif

//! case: an RDMA write from a temporary region
//! error: dat: the lmr must outlive the rdma_write
//! tags: [DTO-005]
#ifdef DAT_EXPECT_FAIL
auto dying_write(region<both> m, remote<mem_priv::remote_write> r) { return dat::rdma_write{std::move(m), r}; }
#else
auto living_write(region<both>& m, remote<mem_priv::remote_write> r) { return dat::rdma_write{m, r}; }
#endif

//! case: an RDMA read into a temporary region
//! error: dat: the lmr must outlive the rdma_read
//! tags: [DTO-005]
#ifdef DAT_EXPECT_FAIL
auto dying_read(region<both> m, remote<mem_priv::remote_read> r) { return dat::rdma_read{std::move(m), r}; }
#else
auto living_read(region<both>& m, remote<mem_priv::remote_read> r) { return dat::rdma_read{m, r}; }
#endif

//! case: a list of a temporary region
//! error: dat: the adapter reads or writes this memory after the call
//! tags: [DTO-005]
#ifdef DAT_EXPECT_FAIL
auto dying_list(region<both> m, local<both> s) { return dat::iov{s, std::move(m)}; }
#else
auto living_list(region<both>& m, local<both> s) { return dat::iov{s, m}; }
#endif

//! case: a temporary region appended to a list
//! error: dat: pass an lmr that lives on
//! tags: [DTO-005]
#ifdef DAT_EXPECT_FAIL
bool dying_push(dat::iov<2, both>& list, region<both> m) { return list.push_back(std::move(m)); }
#else
bool living_push(dat::iov<2, both>& list, region<both>& m) { return list.push_back(m); }
#endif

//! case: a segment appended to a list whose rights it lacks
//! error: dat: this segment lacks a right of the list
//! tags: [DTO-084]
#ifdef DAT_EXPECT_FAIL
bool weak_push(dat::iov<2, both>& list, local<mem_priv::local_read> s) { return list.push_back(s); }
#else
bool strong_push(dat::iov<2, both>& list, local<both> s) { return list.push_back(s); }
#endif

//! case: receives and requests in one call
//! error: dat: post either receives or requests
#ifdef DAT_EXPECT_FAIL
auto mixed_post(dat::ep_ref e, local<both> s) { return e.post(dat::recv{s}, dat::send{s}); }
#else
auto plain_post(dat::ep_ref e, local<both> s) {
  return e.post(dat::rdma_write{s, remote<mem_priv::remote_write>()}, dat::send{s});
}
#endif

//! case: a memory segment posted instead of an operation
//! error: dat: post either receives or requests
#ifdef DAT_EXPECT_FAIL
auto posted_segment(dat::ep_ref e, local<both> s) { return e.post(s); }
#else
auto posted_send(dat::ep_ref e, local<both> s) { return e.post(dat::send{s}); }
#endif

//! case: a batch with room for fewer segments than the request has
//! error: dat: this request may have more segments than the batch has room for
//! tags: [DTO-081]
#ifdef DAT_EXPECT_FAIL
bool small_batch(dat::batch<4, 1>& b, local<both> s) { return b.push_back(dat::send{dat::iov{s, s}}); }
#else
bool large_batch(dat::batch<4, 2>& b, local<both> s) { return b.push_back(dat::send{dat::iov{s, s}}); }
#endif

//! case: a receive in a batch
//! error: is_request
#ifdef DAT_EXPECT_FAIL
bool recv_batch(dat::batch<4>& b, local<both> s) { return b.push_back(dat::recv{s}); }
#else
bool send_batch(dat::batch<4>& b, local<both> s) { return b.push_back(dat::send{s}); }
#endif

//! case: receives that a callable returns
//! error: dat: post_n takes a callable that returns the request of an index
#ifdef DAT_EXPECT_FAIL
auto made_receives(const dat::ep_ref& ep, local<both> s) {
  return ep.post_n(2, [=](std::size_t) { return dat::recv{s}; });
}
#else
auto made_sends(const dat::ep_ref& ep, local<both> s) {
  return ep.post_n(2, [=](std::size_t) { return dat::send{s}; });
}
#endif

//! case: requests of several segments that a callable returns
//! error: dat: post_n takes requests of one segment
#ifdef DAT_EXPECT_FAIL
auto made_lists(const dat::ep_ref& ep, local<both> s) {
  return ep.post_n(2, [=](std::size_t) { return dat::send{dat::iov{s, s}}; });
}
#else
auto made_singles(const dat::ep_ref& ep, local<both> s) {
  return ep.post_n(2, [=](std::size_t) { return dat::send{dat::iov{s}}; });
}
#endif

//! case: the result of push_back on a batch is discarded
//! error: -Werror=unused-result|-Wunused-result
#ifdef DAT_EXPECT_FAIL
void full_or_not(dat::batch<4>& b, local<both> s) { b.push_back(dat::send{s}); }
#else
void not_full(dat::batch<4>& b, local<both> s) { (void)b.push_back(dat::send{s}); }
#endif

//! case: a copied batch
//! error: deleted
#ifdef DAT_EXPECT_FAIL
auto copied(const dat::batch<4>& b) { return dat::batch<4>(b); }
#else
auto& referred(const dat::batch<4>& b) { return b; }
#endif

//! case: an atomic on memory that peers may only write
//! error: dat: an atomic needs a remote segment with dat::remote_atomic
//! tags: [IBX-012]
#ifdef DAT_EXPECT_FAIL
auto bad_atomic(dat::local_segment<std::uint64_t, both> old,
                dat::remote_segment<std::uint64_t, mem_priv::remote_write> w) {
  return dat::ib::fetch_and_add{old, w, 1};
}
#else
auto good_atomic(dat::local_segment<std::uint64_t, both> old,
                 dat::remote_segment<std::uint64_t, mem_priv::remote_atomic> w) {
  return dat::ib::fetch_and_add{old, w, 1};
}
#endif

//! case: an atomic on a word of 32 bits
//! error: dat: atomics work on std::uint64_t: register the words as such
//! tags: [IBX-038]
#ifdef DAT_EXPECT_FAIL
auto bad_word(dat::local_segment<std::uint32_t, both> old,
              dat::remote_segment<std::uint32_t, mem_priv::remote_atomic> w) {
  return dat::ib::compare_and_swap{old, w, 1, 2};
}
#else
auto good_word(dat::local_segment<std::uint64_t, both> old,
               dat::remote_segment<std::uint64_t, mem_priv::remote_atomic> w) {
  return dat::ib::compare_and_swap{old, w, 1, 2};
}
#endif

//! case: a word for atomics of memory that peers may only write
//! error: dat: an atomic needs a remote segment with dat::remote_atomic
//! tags: [IBX-012]
#ifdef DAT_EXPECT_FAIL
auto no_word(dat::remote_segment<std::uint64_t, mem_priv::remote_write> there) { return there.word(); }
#else
auto a_word(dat::remote_segment<std::uint64_t, mem_priv::remote_atomic> there) { return there.word(); }
#endif

//! case: a word for the old value in memory that is only read
//! error: dat: the old value of an atomic needs memory registered with dat::local_write
#ifdef DAT_EXPECT_FAIL
auto no_place(dat::local_segment<std::uint64_t, mem_priv::local_read> mine) { return mine.word(); }
#else
auto a_place(dat::local_segment<std::uint64_t, mem_priv::local_write> mine) { return mine.word(); }
#endif

//! case: a receive into an expected segment that is not unwrapped
//! error: dat: recv takes .*unwrap what is an expected, by DAT_TRY or value
#ifdef DAT_EXPECT_FAIL
auto unlooked_at(const region<mem_priv::local_write>& m) { return dat::recv{m.slice(0, 1)}; }
#else
auto looked_at(const region<mem_priv::local_write>& m) { return dat::recv{m.slice(0, 1).value()}; }
#endif

//! case: an RDMA write to a local segment
//! error: dat: rdma_write takes local memory first, and then a remote segment: one that the peer has sent
#ifdef DAT_EXPECT_FAIL
auto to_oneself(const region<shared>& m) { return dat::rdma_write{m, m}; }
#else
auto to_the_peer(const region<shared>& m) { return dat::rdma_write{m, m.remote()}; }
#endif

//! case: an atomic write of memory that peers may only read
//! error: dat: an atomic write needs a remote segment with dat::remote_write
#ifdef DAT_EXPECT_FAIL
auto bad_atomic_write(dat::remote_segment<std::uint64_t, mem_priv::remote_read> w) {
  return dat::ib::atomic_write{w, 1};
}
#else
auto good_atomic_write(dat::remote_segment<std::uint64_t, mem_priv::remote_write> w) {
  return dat::ib::atomic_write{w, 1};
}
#endif

//! case: an atomic write of a word of 32 bits
//! error: dat: an atomic write works on std::uint64_t: register the words as such
#ifdef DAT_EXPECT_FAIL
auto short_atomic_write(dat::remote_segment<std::uint32_t, mem_priv::remote_write> w) {
  return dat::ib::atomic_write{w, 1};
}
#else
auto long_atomic_write(dat::remote_segment<std::uint64_t, mem_priv::remote_write> w) {
  return dat::ib::atomic_write{w, 1};
}
#endif

//! case: an atomic write beside another request in one post
//! error: dat: verbs posts an atomic write or a flush by itself: post it in a call of its own
#ifdef DAT_EXPECT_FAIL
auto posted_beside(dat::ep<dat::rc>& e, dat::ib::atomic_write w) { return e.post(dat::send{}, w); }
#else
auto posted_alone(dat::ep<dat::rc>& e, dat::ib::atomic_write w) { return e.post(w); }
#endif

//! case: an atomic write in a batch
//! error: dat: a batch posts its requests as one chain, and verbs posts an atomic write or a flush by itself
#ifdef DAT_EXPECT_FAIL
auto in_batch(dat::batch<2>& b, dat::ib::atomic_write w) { return b.push_back(w); }
#else
auto in_batch(dat::batch<2>& b, dat::send<0> w) { return b.push_back(w); }
#endif

//! case: a flush of memory that peers may only write
//! error: dat: a flush needs a remote segment with the right of its persistence
#ifdef DAT_EXPECT_FAIL
auto flush_without_right(dat::remote_segment<char, mem_priv::remote_write> s) {
  return dat::ib::flush{s, dat::persistence::global};
}
#else
auto flush_with_right(dat::remote_segment<char, mem_priv::flush_global> s) {
  return dat::ib::flush{s, dat::persistence::global};
}
#endif

//! case: a flush to persistent memory where peers may only flush to global visibility
//! error: dat: a flush needs a remote segment with the right of its persistence
#ifdef DAT_EXPECT_FAIL
auto flush_too_far(dat::remote_segment<char, mem_priv::flush_global> s) {
  return dat::ib::flush{s, dat::persistence::persistent};
}
#else
auto flush_as_granted(dat::remote_segment<char, mem_priv::flush_persistent> s) {
  return dat::ib::flush{s, dat::persistence::persistent};
}
#endif

//! case: a flush beside another request in one post
//! error: dat: verbs posts an atomic write or a flush by itself: post it in a call of its own
#ifdef DAT_EXPECT_FAIL
auto flush_beside(dat::ep<dat::rc>& e, dat::ib::flush f) { return e.post(dat::send{}, f); }
#else
auto flush_alone(dat::ep<dat::rc>& e, dat::ib::flush f) { return e.post(f); }
#endif

//! case: a flush in a batch
//! error: dat: a batch posts its requests as one chain, and verbs posts an atomic write or a flush by itself
#ifdef DAT_EXPECT_FAIL
auto flush_in_batch(dat::batch<2>& b, dat::ib::flush f) { return b.push_back(f); }
#else
auto send_in_batch(dat::batch<2>& b, dat::send<0> f) { return b.push_back(f); }
#endif
