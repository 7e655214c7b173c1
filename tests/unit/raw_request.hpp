// Requests of datagram endpoints that a test sends itself, with a header of its choice.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "world.hpp"

#include <dat/ud.hpp>

#include <cstring>
#include <optional>
#include <string_view>

namespace unit {

/// The header of a request whose sender has the number 17 and this address.
inline dat::detail::qp_place header_of(const dat::ia_address& sender) {
  dat::detail::qp_place header;
  header.qp_num = 17;
  header.gid = dat::detail::gid_of(sender);
  return header;
}

/// One request to the datagram service of fk2. Without a header it is that of a program that does not use dat.
class raw_request {
public:
  raw_request(const dat::ia_address& from, const std::optional<dat::detail::qp_place>& header, std::string_view text) {
    REQUIRE(dat::detail::make_nonblocking(channel_->fd) == 0);
    REQUIRE(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_UDP) == 0);
    const auto there = must(dat::ia_address::parse("10.99.2.1")).with_port(service);
    const auto raw = [](const dat::ia_address& a) { return const_cast<sockaddr*>(a.native_handle()); };
    REQUIRE(rdma_bind_addr(id_, raw(from)) == 0);
    REQUIRE(rdma_resolve_addr(id_, nullptr, raw(there), 1000) == 0);
    REQUIRE(next() == RDMA_CM_EVENT_ADDR_RESOLVED);
    REQUIRE(rdma_resolve_route(id_, 1000) == 0);
    REQUIRE(next() == RDMA_CM_EVENT_ROUTE_RESOLVED);
    std::array<std::byte, 180> data{};
    std::byte* const behind =
        header ? dat::detail::datagram_header::write(*header, text.size(), data.data()) : data.data();
    std::memcpy(behind, text.data(), text.size());
    rdma_conn_param p{};
    p.private_data = data.data();
    p.private_data_len = data.size();
    REQUIRE(rdma_connect(id_, &p) == 0);
  }
  raw_request(const raw_request&) = delete;
  raw_request& operator=(const raw_request&) = delete;
  ~raw_request() {
    rdma_destroy_id(id_);
    rdma_destroy_event_channel(channel_);
  }
  std::optional<rdma_cm_event_type> next() {
    rdma_cm_event* e = nullptr;
    if (rdma_get_cm_event(channel_, &e) != 0) return {};
    const auto what = e->event;
    rdma_ack_cm_event(e);
    return what;
  }

private:
  rdma_event_channel* channel_ = rdma_create_event_channel();
  rdma_cm_id* id_ = nullptr;
};

/// The request that has arrived, if one has.
template <dat::streams S>
std::optional<dat::ib::datagram_request> request_of(dat::ia& ia, dat::evd<S>& evd) {
  ia.run();
  auto e = evd.dequeue();
  if (!e) return {};
  return std::move(std::get<dat::ib::datagram_request>(e.value()));
}

} // namespace unit
