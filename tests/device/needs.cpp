// Whether the device has the features that a case needs, and how dat refuses missing ones.
// SPDX-License-Identifier: BSL-1.0
#include "device_table.hpp"
#include "support.hpp"

#include <dat/descriptor.hpp>
#include <dat/memory.hpp>
#include <dat/rmr.hpp>
#include <dat/ud.hpp>

namespace device {
namespace {

template <class T>
bool refused(const dat::expected<T>& r) {
  return !r && r.assume_error().type() == type::model_not_supported;
}

bool refuses_windows() {
  side s(0);
  return refused(s.pz.create_rmr()) && refused(s.pz.create_rmr_for_ep());
}

bool refuses_immediate_data() {
  connected_pair link;
  buffer out(link.a.pz, 8);
  const buffer in(link.b.pz, 8);
  return refused(link.active.post(dat::send{out.lmr}.immediate(7))) &&
         refused(link.active.post(dat::rdma_write{out.lmr, in.remote()}.immediate(7)));
}

bool refuses_datagrams() {
  constexpr auto streams = all_streams | dat::stream::datagrams;
  side s(0);
  auto evd = must(s.ia.create_evd<streams>(16));
  return refused(s.pz.create_ep<dat::ud>(evd)) && refused(dat::ib::datagram_service::listen(s.ia, next_port(), evd));
}

bool refuses_descriptors() {
  side s(0);
  auto ep = s.make_ep();
  return refused(ep.export_descriptor());
}

bool refuses_atomics() {
  constexpr auto rights = all_rights | dat::remote_atomic;
  connected_pair link;
  std::array<std::uint64_t, 2> words{};
  const auto near = must(link.a.pz.register_memory(words, all_rights));
  const auto far = link.b.pz.register_memory(words, rights);
  if (!far) return refused(far);
  const auto word = must(far.value().remote().word(0));
  return refused(link.active.post(dat::ib::fetch_and_add{must(near.whole().word(1)), word, 1})) &&
         refused(link.active.post(
             dat::ib::compare_and_swap{must(near.slice(1, 1)), must(far.value().remote().slice(0, 1)), 0, 1}));
}

bool refuses_zero_based() {
  side s(0);
  constexpr std::size_t size = 4096;
  const std::unique_ptr<void, decltype(&std::free)> page(std::aligned_alloc(size, size), &std::free);
  const std::span all(static_cast<std::byte*>(page.get()), size);
  return !must(s.ia.query<dat::provider_attributes>()).zb_supported &&
         refused(dat::register_zero_based(s.pz, all, all_rights));
}

bool refuses_solicited_waits() {
  side s(0);
  auto evd = must(s.ia.create_evd<dat::stream::dto>(16));
  return refused(s.pz.create_ep<dat::rc>({.recv = evd, .request = s.evd, .connect = s.evd},
                                         {.recv_completion = dat::completion_notification::solicited_wait}));
}

} // namespace

bool has(feature what) {
  return what == feature::immediate_data ? this_device().immediate_data : this_device().infiniband;
}

bool refuses(feature what) {
  switch (what) {
  case feature::windows:
    return refuses_windows();
  case feature::immediate_data:
    return refuses_immediate_data();
  case feature::datagrams:
    return refuses_datagrams();
  case feature::descriptors:
    return refuses_descriptors();
  case feature::atomics:
    return refuses_atomics();
  case feature::zero_based:
    return refuses_zero_based();
  case feature::solicited_waits:
    return refuses_solicited_waits();
  }
  return false;
}

} // namespace device
