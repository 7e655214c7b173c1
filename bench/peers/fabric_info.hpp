// What the two programs in libfabric share: errors, and the provider's description of an address.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <string>
#include <utility>

namespace peers::fabric {

inline void check(const char* what, long result) {
  if (result >= 0) return;
  std::fprintf(stderr, "libfabric: %s: %s\n", what, fi_strerror(static_cast<int>(-result)));
  std::exit(1);
}

/// Opens the fabric that a description names, and an event queue for its connections.
inline void open_events(fi_info& i, fid_fabric*& fabric, fid_eq*& events) {
  check("fi_fabric", fi_fabric(i.fabric_attr, &fabric, nullptr));
  fi_eq_attr attr{};
  attr.wait_obj = FI_WAIT_FD;
  check("fi_eq_open", fi_eq_open(fabric, &attr, &events, nullptr));
}

/// Waits for the next event of a connection, which has at most `bytes`: its number.
inline std::uint32_t next_event(fid_eq* events, void* into, std::size_t bytes) {
  std::uint32_t what = 0;
  const auto read = fi_eq_sread(events, &what, into, bytes, -1, 0);
  if (read == -FI_EAVAIL) {
    fi_eq_err_entry why{};
    fi_eq_readerr(events, &why, 0);
    check("connection", -why.err);
  }
  check("fi_eq_sread", read);
  return what;
}

struct free_info {
  void operator()(fi_info* i) const { fi_freeinfo(i); }
};
using info = std::unique_ptr<fi_info, free_info>;

struct queues {
  std::size_t depth;
  std::size_t segments;
};

/// The description of an address here, or with `source` of one there as it is reached from `source`.
inline info find(const std::string& node, std::uint16_t port, const std::string& source, queues q) {
  const info hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_MSG;
  hints->caps = FI_MSG | FI_RMA | FI_ATOMIC;
  hints->addr_format = FI_SOCKADDR_IN;
  hints->fabric_attr->prov_name = ::strdup("verbs");
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->tx_attr->size = hints->rx_attr->size = q.depth;
  hints->tx_attr->iov_limit = hints->rx_attr->iov_limit = q.segments;
  fi_info* found = nullptr;
  if (!source.empty()) {
    check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), source.c_str(), nullptr, FI_SOURCE, hints.get(), &found));
    const info from(found);
    std::swap(hints->src_addr, from->src_addr);
    std::swap(hints->src_addrlen, from->src_addrlen);
  }
  check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), node.c_str(), std::to_string(port).c_str(),
                                 source.empty() ? FI_SOURCE : 0, hints.get(), &found));
  return info(found);
}

} // namespace peers::fabric
