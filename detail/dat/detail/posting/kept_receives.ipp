// Definitions of kept_receives.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/posting/kept_receives.hpp>
#include <dat/detail/verbs/empty_receive.hpp>

#include <cstddef>
#include <new>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL kept_receives* kept_receives::make(std::uint32_t receives, std::uint32_t segments) noexcept {
  // One block: the object, a record of each receive, and the segments.
  static_assert(sizeof(kept_receives) % alignof(receive) == 0 && sizeof(receive) % alignof(ibv_sge) == 0);
  const std::size_t records = sizeof(kept_receives) + receives * sizeof(receive);
  const std::size_t bytes = records + std::size_t{receives} * segments * sizeof(ibv_sge);
  void* const block = ::operator new(bytes, std::nothrow);
  if (!block) return nullptr;
  auto* const at = static_cast<std::byte*>(block);
  // The pages of receives that are never posted are never touched.
  return ::new (block) kept_receives(receives, reinterpret_cast<receive*>(at + sizeof(kept_receives)),
                                     reinterpret_cast<ibv_sge*>(at + records));
}

DAT_DECL void kept_receives::destroy(kept_receives* what) noexcept { ::operator delete(what); }

DAT_DECL void kept_receives::note_zone(zone_tag zone) noexcept {
  if (count_ + checked_ < capacity_) receives_[count_ + checked_++].zone = zone;
}

DAT_DECL void kept_receives::add(const ibv_recv_wr* first, std::uint32_t n, zone_tag zone) noexcept {
  const bool noted = std::exchange(checked_, 0) == n; // false for a post that checks nothing
  for (; n != 0 && count_ != capacity_; --n, first = first->next) {
    const auto segments = static_cast<std::uint32_t>(first->num_sge);
    receives_[count_] = {zone == zone_tag::none() && noted ? receives_[count_].zone : zone, used_, segments};
    ++count_;
    for (std::uint32_t i = 0; i != segments; ++i) segments_[used_++] = first->sg_list[i];
  }
}

DAT_DECL std::uint32_t kept_receives::most_segments() const noexcept {
  std::uint32_t most = 0;
  for (std::uint32_t i = 0; i != count_; ++i) most = receives_[i].count > most ? receives_[i].count : most;
  return most;
}

DAT_DECL void kept_receives::assign(const kept_receives& other) noexcept {
  for (std::uint32_t i = 0; i != other.count_; ++i) receives_[i] = other.receives_[i];
  for (std::uint32_t i = 0; i != other.used_; ++i) segments_[i] = other.segments_[i];
  count_ = other.count_;
  used_ = other.used_;
}

DAT_DECL int kept_receives::post(const work_entry* first, work_ring& to, ibv_qp* qp, zone_tag zone) const noexcept {
  const auto submit = [qp](ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept { return ibv_post_recv(qp, wr, bad); };
  for (std::uint32_t i = 0; i != count_; ++i, first = first->next) {
    const receive& r = receives_[i];
    work_entry* const e = to.next();
    e->posted = first->posted;
    // A receive that was posted unchecked, before the endpoint had a zone, has the zone none().
    const bool foreign = r.count != 0 && r.zone != zone && r.zone != zone_tag::none() && zone != zone_tag::none();
    e->posted.set_foreign(foreign);
    to.set_next(e->next);
    if (!qp) continue;
    ibv_recv_wr wr{};
    wr.wr_id = e->id();
    wr.sg_list = segments_ + r.first;
    wr.num_sge = static_cast<int>(r.count);
    ibv_recv_wr* bad = &wr;
    int err = submit(&wr, &bad);
    if (refused_for_emptiness(err, bad)) err = post_empty_receives(&wr, bad, submit);
    if (err != 0) return err;
  }
  return 0;
}

}}} // namespace dat::v0::detail
