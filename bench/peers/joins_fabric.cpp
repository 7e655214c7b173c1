// Connections by libfabric: message endpoints of the provider verbs.
// SPDX-License-Identifier: BSL-1.0
#include "fabric_info.hpp"
#include "joins.hpp"

#include <utility>
#include <vector>

using namespace connecting;

namespace {

using peers::fabric::check;
using peers::fabric::info;

class fabric_end {
public:
  fabric_end(const place& p, bool serves)
      : info_(peers::fabric::find(serves ? p.local : p.remote, p.port, serves ? "" : p.local, {depth, segments})) {
    peers::fabric::open_events(*info_, fabric_, events_);
  }
  fabric_end(const fabric_end&) = delete;
  fabric_end& operator=(const fabric_end&) = delete;
  ~fabric_end() {
    if (completions_) fi_close(&completions_->fid);
    if (domain_) fi_close(&domain_->fid);
    if (events_) fi_close(&events_->fid);
    if (fabric_) fi_close(&fabric_->fid);
  }

  template <class Ready, class AllUp>
  void serve(const job& j, Ready ready, AllUp all_up) {
    fid_pep* listener = nullptr;
    check("fi_passive_ep", fi_passive_ep(fabric_, info_.get(), &listener, nullptr));
    check("fi_pep_bind", fi_pep_bind(listener, &events_->fid, 0));
    check("fi_listen", fi_listen(listener));
    ready();
    std::size_t up = 0;
    for (std::size_t over = 0; over < j.total;) {
      const auto [what, e] = next();
      switch (what) {
      case FI_CONNREQ: {
        const info theirs(e.info);
        check("fi_accept", fi_accept(make(*theirs), nullptr, 0));
        break;
      }
      case FI_CONNECTED:
        if (!j.held) check("fi_shutdown", fi_shutdown(ep_of(e), 0));
        if (++up == j.total && j.held) all_up();
        break;
      case FI_SHUTDOWN:
        if (j.held) check("fi_shutdown", fi_shutdown(ep_of(e), 0)); // the answer
        check("fi_close", fi_close(e.fid));
        ++over;
        break;
      default:
        give_up("server", "unexpected event");
      }
    }
    check("fi_close", fi_close(&listener->fid));
  }

  template <class AllUp>
  void connect(const job& j, AllUp all_up) {
    std::size_t begun = 0;
    std::vector<fid_ep*> held;
    held.reserve(j.total);
    const auto begin = [&] { check("fi_connect", fi_connect(make(*info_), info_->dest_addr, nullptr, 0)); };
    for (; begun < j.together; ++begun) begin();
    for (std::size_t over = 0; over < j.total;) {
      const auto [what, e] = next();
      switch (what) {
      case FI_CONNECTED:
        if (!j.held) break;
        held.push_back(ep_of(e));
        if (begun < j.total) begin(), ++begun;
        if (held.size() < j.total) break;
        all_up();
        for (fid_ep* one : held) check("fi_shutdown", fi_shutdown(one, 0));
        break;
      case FI_SHUTDOWN:
        if (!j.held) check("fi_shutdown", fi_shutdown(ep_of(e), 0)); // the answer
        check("fi_close", fi_close(e.fid));
        ++over;
        if (begun < j.total) begin(), ++begun;
        break;
      default:
        give_up("client", "unexpected event");
      }
    }
  }

private:
  static fid_ep* ep_of(const fi_eq_cm_entry& e) { return reinterpret_cast<fid_ep*>(e.fid); }

  std::pair<std::uint32_t, fi_eq_cm_entry> next() {
    fi_eq_cm_entry e{};
    const std::uint32_t what = peers::fabric::next_event(events_, &e, sizeof e);
    return {what, e};
  }
  fid_ep* make(fi_info& i) {
    if (!domain_) {
      check("fi_domain", fi_domain(fabric_, &i, &domain_, nullptr));
      fi_cq_attr attr{};
      attr.size = 4096;
      attr.format = FI_CQ_FORMAT_CONTEXT;
      check("fi_cq_open", fi_cq_open(domain_, &attr, &completions_, nullptr));
    }
    fid_ep* ep = nullptr;
    check("fi_endpoint", fi_endpoint(domain_, &i, &ep, nullptr));
    check("fi_ep_bind", fi_ep_bind(ep, &events_->fid, 0));
    check("fi_ep_bind", fi_ep_bind(ep, &completions_->fid, FI_TRANSMIT | FI_RECV));
    check("fi_enable", fi_enable(ep));
    return ep;
  }

  info info_;
  fid_fabric* fabric_ = nullptr;
  fid_eq* events_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_cq* completions_ = nullptr;
};

} // namespace

int main(int argc, char** argv) {
  side_of_turn side{};
  if (!read_arguments(argc, argv, 1, side)) {
    std::fputs("usage: joins_fabric serve|connect connections|heap|resident COUNT LOCAL REMOTE PORT\n", stderr);
    return 2;
  }
  fabric_end end(side.where, side.serves);
  return run_side(end, side);
}
