// The objects of a sequence of calls, and the values that the input chooses for their arguments.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <dat/batch.hpp>
#include <dat/csp.hpp>
#include <dat/descriptor.hpp>
#include <dat/ep_params.hpp>
#include <dat/ib.hpp>
#include <dat/ib_query.hpp>
#include <dat/memory.hpp>
#include <dat/multicast.hpp>
#include <dat/rmr.hpp>
#include <dat/rsp.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <netinet/in.h>
#include <utility>

namespace fuzz {

inline constexpr auto completions = dat::stream::dto | dat::stream::datagrams | dat::stream::rmr_bind;
inline constexpr auto word_rights = all_rights | dat::remote_atomic;
inline constexpr dat::communicator tcp{AF_INET, SOCK_STREAM, 0};

template <class T, std::size_t N = 2>
using slots = std::array<T, N>;

struct run {
  explicit run(input& bytes) : in(bytes) {}
  input& in;
  // Objects that others need are declared first, but they may end in any order.
  std::array<char, 512> memory{};
  alignas(8) std::array<std::uint64_t, 8> words{};
  slots<dat::ia> ias;
  slots<dat::cno> cnos;
  slots<queue, 3> evds;
  slots<dat::evd<completions>> lean;
  slots<dat::pz> zones;
  slots<region> regions;
  slots<dat::lmr<std::uint64_t, word_rights.value>, 1> word_regions;
  slots<dat::rmr> windows;
  slots<dat::srq> srqs;
  slots<dat::ep<dat::rc>, 3> eps;
  slots<dat::ep<dat::with_srq<dat::rc>>> sharing;
  slots<dat::ep<dat::ud>> datagrams;
  slots<dat::psp> psps;
  slots<dat::rsp, 1> rsps;
  slots<dat::csp, 1> csps;
  slots<dat::ib::datagram_service, 1> services;
  slots<dat::cr> requests;
  slots<dat::ib::datagram_request, 1> asked;
  slots<dat::ib::address_handle> peers;
  slots<dat::ib::multicast_group, 1> groups;
  slots<dat::ib::descriptor> descriptors;
  dat::remote_segment<char, all_rights.value> remote;

  template <class T, std::size_t N>
  T& any(std::array<T, N>& all) {
    return all[in.below(N)];
  }
  /// Replaces the object of a slot if the creation succeeded.
  template <class T, std::size_t N, class V>
  void put(std::array<T, N>& all, dat::expected<V>&& made) {
    if (made)
      any(all) = std::move(made).value();
    else
      check(made);
  }
  template <class R>
  void check(const R& result) {
    if (!result)
      require(!result.error().message().empty() && !result.error().call().empty(), "an error without a call");
  }
  /// Closes, moves or destroys the object of a slot.
  template <class T, std::size_t N>
  void end(std::array<T, N>& all) {
    T& one = any(all);
    switch (in.below(4)) {
    case 0:
      if constexpr (requires { one.close(); }) check(one.close());
      break;
    case 1:
      any(all) = std::move(one); // NOLINT(clang-diagnostic-self-move): a handle may move to itself
      break;
    case 2: {
      const T taken = std::move(one);
      break;
    }
    default:
      one = T();
    }
  }
  std::uint32_t count() {
    static constexpr std::uint32_t some[] = {1, 2, 4, 64, 0, 3, 8, 1000, 0x7fffffff, 0x80000000, 0xffffffff};
    return in.one_of(some);
  }
  dat::conn_qual port() {
    auto q = dat::conn_qual::make(static_cast<std::uint16_t>(service + in.below(4)));
    return must(std::move(q));
  }
  dat::ia_address address() {
    static constexpr const char* some[] = {"10.99.1.1", "10.99.2.1",       "fd99:1::1",  "fd99:2::1",
                                           "10.99.9.9", "0.0.0.0",         "::",         "239.1.2.3",
                                           "127.0.0.1", "255.255.255.255", "fe80::1%lo", "240.0.0.1"};
    const auto a = dat::ia_address::parse(in.one_of(some));
    return (a ? a.value() : dat::ia_address()).with_port(static_cast<std::uint16_t>(service + in.below(4)));
  }
  /// A part of a region. It is empty if the region is empty, or if the part is not inside the region.
  dat::local_segment<char, all_rights.value> piece() {
    auto s = any(regions).slice(in.byte(), in.byte());
    if (!s) check(s);
    return s ? s.value() : dat::local_segment<char, all_rights.value>();
  }
  dat::ep_attributes attributes() {
    dat::ep_attributes a;
    if (in.flag()) return a;
    a.max_request_dtos = count();
    a.max_recv_dtos = count();
    a.max_request_iov = count();
    a.max_recv_iov = count();
    a.max_inline = count();
    a.max_message_size = count();
    if (in.flag()) a.max_rdma_read_out = in.byte();
    if (in.flag()) a.max_rdma_read_in = in.byte();
    a.retry_count = in.byte();
    a.rnr_retry_count = in.byte();
    a.ack_timeout = std::chrono::microseconds(in.number<std::int32_t>());
    a.min_rnr_timer = std::chrono::microseconds(in.number<std::int32_t>());
    a.accept_timeout = std::chrono::milliseconds(in.number<std::int32_t>());
    a.recv_completion = static_cast<dat::completion_notification>(in.byte());
    a.request_completion = static_cast<dat::completion_notification>(in.byte());
    a.soft_high_watermark = count();
    a.hard_high_watermark = count();
    if (in.flag()) a.comm = tcp;
    return a;
  }
  dat::ep_evds queues() {
    switch (in.below(4)) {
    case 0:
      return {};
    case 1:
      return {.recv = any(lean), .request = any(lean), .connect = any(evds)};
    case 2:
      return {.recv = any(evds), .request = any(evds), .connect = dat::drop_events};
    default:
      return {.recv = any(evds), .request = any(evds), .connect = any(evds)};
    }
  }
  void step();
  void scene(unsigned what);
  void objects();
  void connection();
  void datagrams_known();
  void turn() {
    for (int i = 0; i < 4; ++i)
      for (dat::ia& ia : ias) ia.run();
  }
  /// Fills an empty slot.
  template <class T, class V>
  void give(T& one, dat::expected<V>&& made) {
    if (made)
      one = std::move(made).value();
    else
      check(made);
  }
  void adapters();
  void events();
  void service_points();
  void endpoints();
  void posts();
  void memory_calls();
  void datagram_calls();
  template <class Evd>
  void take(Evd& evd);
};

} // namespace fuzz
