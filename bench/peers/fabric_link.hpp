// One end in libfabric, a message endpoint of the provider verbs, connected like the end in hand-written verbs.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../pingpong/link.hpp"
#include "fabric_info.hpp"

#include <cstddef>
#include <cstring>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <string>

namespace peers {

using namespace pingpong;

class fabric_link {
public:
  fabric_link() = default;
  fabric_link(const fabric_link&) = delete;
  fabric_link& operator=(const fabric_link&) = delete;
  ~fabric_link() {
    if (ep_) fi_shutdown(ep_, 0);
    for (fid* one : {fid_of(ep_), fid_of(mr_), fid_of(cq_), fid_of(domain_), fid_of(eq_), fid_of(fabric_)})
      if (one) fi_close(one);
  }

  template <class Ready>
  void serve(const std::string& local, std::uint16_t port, Ready ready) {
    const fabric::info here = fabric::find(local, port, "", {depth, 4});
    fabric::open_events(*here, fabric_, eq_);
    fid_pep* listener = nullptr;
    fabric::check("fi_passive_ep", fi_passive_ep(fabric_, here.get(), &listener, nullptr));
    fabric::check("fi_pep_bind", fi_pep_bind(listener, &eq_->fid, 0));
    fabric::check("fi_listen", fi_listen(listener));
    ready();
    const fabric::info theirs(next(FI_CONNREQ).info);
    make(*theirs);
    const window mine{reinterpret_cast<std::uint64_t>(memory_.memory.data() + buffers::target), fi_mr_key(mr_)};
    fabric::check("fi_accept", fi_accept(ep_, &mine, sizeof mine));
    next(FI_CONNECTED);
    fi_close(&listener->fid);
  }

  void connect(const std::string& local, const std::string& remote, std::uint16_t port) {
    const fabric::info there = fabric::find(remote, port, local, {depth, 4});
    fabric::open_events(*there, fabric_, eq_);
    make(*there);
    fabric::check("fi_connect", fi_connect(ep_, there->dest_addr, nullptr, 0));
    theirs_ = next(FI_CONNECTED).data;
  }

  /// Waits until the peer has ended the connection.
  void await_end() { next(FI_SHUTDOWN); }

  void send(std::size_t bytes) { send_with(bytes, FI_COMPLETION); }
  /// Only one of `quiet` such sends has a completion.
  void send_quietly(std::size_t bytes) { send_with(bytes, ++sends_ % quiet == 0 ? FI_COMPLETION : 0); }
  void write(std::size_t bytes) {
    iovec from = piece(buffers::out, bytes);
    fi_rma_iov to{theirs_.address, bytes, theirs_.key};
    const fi_msg_rma m{&from, &desc_, 1, FI_ADDR_UNSPEC, &to, 1, nullptr, 0};
    fabric::check("fi_writemsg", fi_writemsg(ep_, &m, FI_COMPLETION));
  }
  void read(std::size_t bytes) {
    iovec to = piece(buffers::out, bytes);
    fi_rma_iov from{theirs_.address, bytes, theirs_.key};
    const fi_msg_rma m{&to, &desc_, 1, FI_ADDR_UNSPEC, &from, 1, nullptr, 0};
    fabric::check("fi_readmsg", fi_readmsg(ep_, &m, FI_COMPLETION));
  }
  void add() {
    fi_ioc one{&one_, 1};
    fi_ioc old{memory_.memory.data() + buffers::out, 1};
    fi_rma_ioc word{theirs_.address, 1, theirs_.key};
    const fi_msg_atomic m{&one, &desc_, 1, FI_ADDR_UNSPEC, &word, 1, FI_UINT64, FI_SUM, nullptr, 0};
    fabric::check("fi_fetch_atomicmsg", fi_fetch_atomicmsg(ep_, &m, &old, &desc_, 1, FI_COMPLETION));
  }

  /// Takes completions until `enough` returns true.
  template <waiting How, class Enough>
  void until(Enough enough) {
    fi_cq_msg_entry entries[16];
    while (!enough()) {
      auto n = fi_cq_read(cq_, entries, 16);
      if (n == -FI_EAGAIN && How == waiting::events) n = fi_cq_sread(cq_, entries, 16, nullptr, -1);
      if (n == -FI_EAGAIN) continue;
      if (n == -FI_EAVAIL) {
        fi_cq_err_entry why{};
        fi_cq_readerr(cq_, &why, 0);
        give_up("completion", fi_strerror(why.err));
      }
      fabric::check("fi_cq_read", n);
      for (long i = 0; i < n; ++i) take(entries[i]);
    }
  }

  counters done;

private:
  struct window {
    std::uint64_t address = 0;
    std::uint64_t key = 0;
  };
  /// An event of a connection, with the data of the peer.
  struct cm_event {
    fi_info* info;
    window data;
  };
  template <class T>
  static fid* fid_of(T* object) {
    return object ? &object->fid : nullptr;
  }

  void make(fi_info& i) {
    fabric::check("fi_domain", fi_domain(fabric_, &i, &domain_, nullptr));
    fi_cq_attr attr{};
    attr.size = 2 * depth;
    attr.format = FI_CQ_FORMAT_MSG;
    attr.wait_obj = FI_WAIT_FD;
    fabric::check("fi_cq_open", fi_cq_open(domain_, &attr, &cq_, nullptr));
    const std::uint64_t rights = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    fabric::check("fi_mr_reg",
                  fi_mr_reg(domain_, memory_.memory.data(), memory_.memory.size(), rights, 0, 0, 0, &mr_, nullptr));
    desc_ = fi_mr_desc(mr_);
    fabric::check("fi_endpoint", fi_endpoint(domain_, &i, &ep_, nullptr));
    fabric::check("fi_ep_bind", fi_ep_bind(ep_, &eq_->fid, 0));
    fabric::check("fi_ep_bind", fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION));
    fabric::check("fi_ep_bind", fi_ep_bind(ep_, &cq_->fid, FI_RECV));
    fabric::check("fi_enable", fi_enable(ep_));
    for (std::size_t n = 0; n < receives; ++n) receive(n);
  }
  cm_event next(std::uint32_t wanted) {
    std::byte room[sizeof(fi_eq_cm_entry) + 256]{};
    const std::uint32_t what = fabric::next_event(eq_, room, sizeof room);
    if (what != wanted) give_up("event", std::to_string(what).c_str());
    cm_event e{};
    std::memcpy(&e.info, room + offsetof(fi_eq_cm_entry, info), sizeof e.info);
    std::memcpy(&e.data, room + offsetof(fi_eq_cm_entry, data), sizeof e.data);
    return e;
  }
  void send_with(std::size_t bytes, std::uint64_t flags) {
    iovec from = piece(buffers::out, bytes);
    const fi_msg m{&from, &desc_, 1, FI_ADDR_UNSPEC, nullptr, 0};
    fabric::check("fi_sendmsg", fi_sendmsg(ep_, &m, flags));
  }
  void receive(std::size_t n) {
    fabric::check("fi_recv", fi_recv(ep_, memory_.memory.data() + buffers::in(n), largest, desc_, FI_ADDR_UNSPEC,
                                     memory_.memory.data() + buffers::in(n)));
  }
  iovec piece(std::size_t offset, std::size_t bytes) { return {memory_.memory.data() + offset, bytes}; }
  void take(const fi_cq_msg_entry& e) {
    if ((e.flags & FI_RECV) != 0) {
      ++done.received;
      receive((static_cast<std::size_t>(static_cast<char*>(e.op_context) - memory_.memory.data()) - buffers::in(0)) /
              largest);
    } else if ((e.flags & FI_SEND) != 0) {
      ++done.sent;
    } else {
      ++done.written;
    }
  }

  buffers memory_;
  window theirs_;
  std::size_t sends_ = 0;
  std::uint64_t one_ = 1;
  void* desc_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_eq* eq_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_cq* cq_ = nullptr;
  fid_mr* mr_ = nullptr;
  fid_ep* ep_ = nullptr;
};

} // namespace peers
