// Connections that are made without a connection manager: what each side tells, and the steps to RTS.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/core.hpp>
#include <dat/detail/ib_time.hpp>
#include <dat/detail/port_place.hpp>

#include <infiniband/verbs.h>

#include <bit>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

namespace dat::inline v0::detail {

/// What is in a descriptor.
struct direct_peer {
  qp_place place;
  std::uint32_t psn = 0;
  std::uint8_t service = 0; ///< 1 connections, 2 datagrams
  std::uint8_t link = 0;
  std::uint8_t mtu = 0;
  std::uint8_t reads_in = 0;
};

struct direct_connection {
  template <class Descriptor>
  [[nodiscard]] static expected<Descriptor> describe(ep_core& ep, const char* call, address_family family) noexcept {
    if (!ep.qp()) return ep.wrong_state(call);
    auto found = place_of(ep.ia(), family == address_family::ipv4);
    if (!found && !ep.ud_) found = place_of(ep.ia(), family != address_family::ipv4);
    if (!found) return ep.at(found.assume_error(), call);
    const port_place& here = found.assume_value();
    Descriptor d;
    const std::lock_guard lock(ep.mutex_);
    d.raw_ = {here.place,
              psn_of(ep),
              static_cast<std::uint8_t>(ep.ud_ ? 2 : 1),
              here.link,
              static_cast<std::uint8_t>(here.mtu),
              ep.ud_ ? std::uint8_t{0} : ep.read_in_};
    d.raw_.place.qp_num = ep.number();
    if (ep.ud_) d.raw_.place.qkey = datagram_qkey;
    return d;
  }

  template <class Descriptor>
  [[nodiscard]] static const direct_peer& of(const Descriptor& d) noexcept {
    return d.raw_;
  }

  /// Whether a descriptor is one that an endpoint of this kind can go to from here.
  [[nodiscard]] static expected<void> check(const ep_core& ep, const direct_peer& peer, const char* call) noexcept {
    const auto bad = [&](const char* hint) {
      return ep.at(error(return_type::invalid_parameter, return_subtype::arg2), call).hint(hint);
    };
    ibv_port_attr port{};
    if (const int err = ibv_query_port(ep.ia().context(), ep.ia().where().port, &port))
      return ep.at(map_errno(err, return_subtype::resource_device).from("ibv_query_port", err), call);
    if (peer.place.qp_num == 0) return bad("the descriptor is empty");
    if (peer.service != (ep.datagrams() ? 2 : 1))
      return bad("the peer's endpoint is of the other service: connections go to connections, datagrams to datagrams");
    if (peer.link != port.link_layer)
      return bad("the peer's adapter has another link layer: InfiniBand and Ethernet do not reach each other");
    return success();
  }

  template <class Descriptor>
  [[nodiscard]] static expected<void> connect(ep_core& ep, const Descriptor& to) noexcept {
    static constexpr const char* call = "ep.connect";
    const direct_peer& peer = of(to);
    if (auto ok = check(ep, peer, call); !ok) return ok;
    auto path = path_to(ep.ia(), peer.place);
    if (!path) return ep.at(path.assume_error(), call);
    auto here = place_of(ep.ia(), is_ipv4(peer.place.gid));
    if (!here) return ep.at(here.assume_error(), call);
    if (auto ok = find_link(ep, path.assume_value(), call); !ok) return ok;

    const std::lock_guard lock(ep.mutex_);
    if (ep.state() != ep_state::unconnected) return ep.wrong_state(call);
    ref<ep_connection> c(new (std::nothrow) ep_connection(ref(&ep.ia()), ep_connection::phase::established), adopt);
    if (!c) return ep.at(error(return_type::insufficient_resources, return_subtype::resource_memory), call);
    c->remote_ = address_of(peer.place.gid);
    c->local_ = address_of(here.assume_value().place.gid);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.ah_attr = path.assume_value();
    attr.path_mtu = static_cast<ibv_mtu>(smaller<int>(here.assume_value().mtu, peer.mtu));
    attr.dest_qp_num = peer.place.qp_num;
    attr.rq_psn = peer.psn;
    attr.max_dest_rd_atomic = ep.read_in_;
    attr.min_rnr_timer = rnr_timer_code(ep.attributes_.min_rnr_timer);
    const auto failed = [&](int err) {
      return ep.at(no_path("ibv_modify_qp", err, return_subtype::resource_tep), call);
    };
    if (const int err = ibv_modify_qp(ep.qp_, &attr,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
      return failed(err);
    c->attach(&ep);
    ep.connection_ = std::move(c);
    ep.agree_on_depth(peer.reads_in);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = psn_of(ep);
    attr.timeout = ack_timeout_code(ep.attributes_.ack_timeout);
    attr.retry_cnt = ep.attributes_.retry_count;
    attr.rnr_retry = ep.attributes_.rnr_retry_count;
    attr.max_rd_atomic = ep.read_depth_;
    if (const int err = ibv_modify_qp(ep.qp_, &attr,
                                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                          IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)) {
      // There is no way back that keeps the receives.
      ep.set_state(ep_state::disconnected);
      ep.flush_queues();
      ep.announce_event(record::kind::non_peer_rejected, err);
      return failed(err).hint("the endpoint is disconnected: reset it before another attempt");
    }
    ep.set_state(ep_state::connected);
    ep.announce_event(record::kind::established);
    return success();
  }

private:
  /// The kernel looks for the link address of a peer that it does not know, for a second at most: here, with no lock
  /// held, so that it need not when the queue pair is told of the peer. Other calls on the endpoint go on meanwhile.
  [[nodiscard]] static expected<void> find_link(ep_core& ep, const ibv_ah_attr& path, const char* call) noexcept {
    if (path.is_global == 0) return success();
    ref<pz_core> pz;
    ep.locked([&](ep_core& e) {
      if (e.state() == ep_state::unconnected) pz = e.pz_;
    });
    if (!pz) return ep.wrong_state(call);
    ibv_ah_attr attr = path;
    ibv_ah* const found = ibv_create_ah(pz->pd(), &attr);
    if (!found) return ep.at(no_path("ibv_create_ah", errno, return_subtype::resource_tep), call);
    ibv_destroy_ah(found);
    return success();
  }

  /// The number of the first packet: another one for each life of an endpoint, and the same whenever asked.
  [[nodiscard]] static std::uint32_t psn_of(const ep_core& ep) noexcept {
    const auto mixed = (static_cast<std::uint64_t>(ep.tag()) >> 32 ^ ep.number()) * 0x9e3779b97f4a7c15u;
    return static_cast<std::uint32_t>(mixed >> 40);
  }
};

} // namespace dat::inline v0::detail
