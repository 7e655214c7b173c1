// The table of personalities.
// SPDX-License-Identifier: BSL-1.0
#include "personality.hpp"
#include "state.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <tuple>

namespace fake {

namespace {

using namespace impl;

void as_rxe(world& w, manners&) {
  w.flush_late_receives = false;
  w.timewait_exit = true;
}

void as_mlx5(world& w, manners& m) {
  w.wc_statuses = statuses::iba;
  w.rejected_sends_stay = false;
  w.destroy_drops = true;
  w.timewait_exit = true;
  m.late_flush = true;
  m.fatal_overrun = true;
  m.last_wqe_event = true;
  m.vendor_errors = true;
  m.lengths_of_reads = true;
  m.srq_resize = false;
  m.slow_query_us = 20;
}

void as_ib(world& w, manners& m) {
  as_mlx5(w, m);
  std::uint16_t lid = 0;
  for (auto& d : w.devices)
    for (auto& p : d.ports) {
      p.link_layer = IBV_LINK_LAYER_INFINIBAND;
      p.lid = lid = std::uint16_t(lid + 0x11);
      p.active_mtu = IBV_MTU_4096;
      p.pkeys = {0xffff, 0x8001};
      p.interface_pkey = 1;
      p.service_level = 3;
    }
}

void as_plain(world&, manners& m) {
  m.srq_query = false;
  m.negative_errnos = true;
  m.reuse_qp_numbers = true;
}

void as_iwarp(world& w, manners& m) {
  as_plain(w, m);
  m.cq_resize = false;
  for (auto& d : w.devices) {
    d.transport = IBV_TRANSPORT_IWARP;
    auto a = rxe_attr();
    a.max_sge = 6;
    a.max_sge_rd = 1;
    a.max_srq_sge = 6;
    a.max_mw = 0;
    a.atomic_cap = IBV_ATOMIC_NONE;
    a.device_cap_flags &= ~unsigned(IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
    d.attr = a;
  }
}

struct personality_row {
  personality which;
  const char* name;
  void (*apply)(world&, manners&);
};
constexpr personality_row personality_rows[] = {
    {personality::kind, "kind", [](world&, manners&) {}},
    {personality::rxe, "rxe", as_rxe},
    {personality::mlx5, "mlx5", as_mlx5},
    {personality::ib, "ib", as_ib},
    {personality::iwarp, "iwarp", as_iwarp},
    {personality::plain, "plain", as_plain},
    {personality::removed, "removed", [](world&, manners& m) { m.removal_kills = true; }},
    {personality::slow, "slow", [](world&, manners& m) { m.slow_call_us = 200; }},
};

personality of_environment() {
  const char* const text = std::getenv("FAKE_VERBS_PERSONALITY");
  if (!text || !*text) return personality::kind;
  for (const auto& r : personality_rows)
    if (std::string_view{text} == r.name) return r.which;
  std::fprintf(stderr, "FAKE_VERBS_PERSONALITY is \"%s\"; there are:", text);
  for (const auto& r : personality_rows) std::fprintf(stderr, " %s", r.name);
  std::fprintf(stderr, "\n");
  std::exit(2);
}

constexpr int none = -1;
std::atomic<int> scoped{none};

std::function<void(manners&)>& change() {
  static std::function<void(manners&)> f;
  return f;
}

bool same(const port_config& a, const port_config& b) {
  const auto all = [](const port_config& p) {
    return std::tie(p.addresses, p.state, p.active_mtu, p.link_layer, p.max_msg_sz, p.lid, p.lmc, p.flags,
                    p.subnet_prefix, p.pkeys, p.interface_pkey, p.service_level, p.interfaces);
  };
  return all(a) == all(b);
}
/// Whether the test has left the devices as they are by default.
bool same(const device_config& a, const device_config& b) {
  return a.name == b.name && a.transport == b.transport && !a.attr && !b.attr && a.atomic_writes == b.atomic_writes &&
         a.flushes == b.flushes && a.extended_qps == b.extended_qps && a.extended_flushes == b.extended_flushes &&
         std::equal(a.ports.begin(), a.ports.end(), b.ports.begin(), b.ports.end(),
                    [](const port_config& x, const port_config& y) { return same(x, y); });
}

} // namespace

const std::vector<personality>& personalities() {
  static const std::vector<personality> all = [] {
    std::vector<personality> r;
    for (const auto& x : personality_rows) r.push_back(x.which);
    return r;
  }();
  return all;
}

const char* name(personality p) {
  for (const auto& r : personality_rows)
    if (r.which == p) return r.name;
  return "?";
}

personality current() {
  static const personality of_process = of_environment();
  const int s = scoped;
  return s == none ? of_process : personality(s);
}

with::with(personality p, std::function<void(manners&)> more) : before_{scoped.exchange(int(p))}, outer_{change()} {
  change() = std::move(more);
}
with::~with() {
  scoped = before_;
  change() = std::move(outer_);
}

manners impl::follow_personality(world& w) {
  world mine;
  manners ways;
  const world plain;
  for (const auto& r : personality_rows)
    if (r.which == current()) r.apply(mine, ways);
  if (change()) change()(ways);
  const auto follow = [&](auto world::*member) {
    if (w.*member == plain.*member) w.*member = mine.*member;
  };
  follow(&world::wc_statuses);
  follow(&world::flush_late_receives);
  follow(&world::rejected_sends_stay);
  follow(&world::destroy_drops);
  follow(&world::timewait_exit);
  if (std::equal(w.devices.begin(), w.devices.end(), plain.devices.begin(), plain.devices.end(),
                 [](const device_config& a, const device_config& b) { return same(a, b); }))
    w.devices = std::move(mine.devices);
  return ways;
}

} // namespace fake
