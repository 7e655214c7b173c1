// Curves over the number of endpoints on one evd.
// SPDX-License-Identifier: BSL-1.0
#include "growth.hpp"

#include <algorithm>
#include <string>

namespace growth {
namespace {

constexpr std::size_t group = 64;    // operations that are posted before their completions are taken
constexpr long most_connects = 1024; // with more endpoints, the fake library takes too long under callgrind

/// Posts one send on each endpoint, by hand and by dat; then with a wait for each send.
template <class Evd>
void sends(const std::string& on, world& w, Evd& evd, std::vector<dat::ep<dat::rc>>& eps) {
  const auto n = static_cast<long>(eps.size());
  const instantly device(eps.front());
  std::vector<ibv_qp*> qps;
  for (auto& ep : eps) qps.push_back(ep.native_handle());
  ibv_cq* const cq = evd.native_handle();
  const ibv_sge sge = {reinterpret_cast<std::uintptr_t>(w.bytes.data()), 64, w.region.native_handle()->lkey};
  const auto in_groups = [&](const auto& post, const auto& take_all) {
    for (std::size_t i = 0; i < eps.size(); i += group) {
      const std::size_t end = std::min(eps.size(), i + group);
      for (std::size_t k = i; k < end; ++k) post(k);
      take_all(static_cast<long>(end - i));
    }
  };
  const std::string drained = "endpoints, sends, " + on;
  count(drained.c_str(), "raw", n, [&] {
    in_groups(
        [&](std::size_t k) {
          ibv_sge one = sge;
          post_raw(qps[k], &one, 1, k);
        },
        [&](long done) { poll_raw(cq, done); });
  });
  const auto segment = must(w.region.slice(0, 64));
  count(drained.c_str(), "dat", n, [&] {
    in_groups([&](std::size_t k) { must(eps[k].post(dat::send{segment}.cookie(k))); },
              [&](long done) { take(evd, done); });
  });
  if constexpr (!Evd::completions_only) {
    const std::string waited = "endpoints, waits, " + on;
    count(waited.c_str(), "dat", n, [&] {
      for (auto& ep : eps) {
        must(ep.post(dat::send{segment}));
        must(evd.template wait_for<dat::send_done>(ep, std::chrono::seconds(10)));
      }
    });
  }
}

template <class Evd>
void endpoints_on(const std::string& on, long n) {
  world w;
  Evd evd = must(w.ia.create_evd<Evd::stream_set>(64));
  std::vector<dat::ep<dat::rc>> eps;
  const std::string connect = "endpoints, connect, " + on;
  const auto connect_all = [&] { eps = w.connected(static_cast<std::size_t>(n), evd); };
  if (n <= most_connects)
    count(connect.c_str(), "dat", n, connect_all, 0);
  else
    connect_all();
  sends(on, w, evd, eps);
  const std::string close = "endpoints, close, " + on;
  count(
      close.c_str(), "dat", n, [&] { eps.clear(); }, 0);
  w.forget_peers();
}

} // namespace

void endpoints(long n) {
  endpoints_on<lean_evd>("lean evd", n);
  endpoints_on<merged_evd>("merged evd", n);
}

} // namespace growth
