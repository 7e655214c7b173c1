// Definitions of evd.hpp.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/evd.hpp>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL expected<evd_attributes> query(evd_core* e) noexcept {
  evd_attributes a;
  if (!e) return a;
  if (e->dead()) return e->closed("evd.query");
  a.streams = e->stream_set();
  for (;;) {
    const std::uint32_t before = e->changes();
    a.qlen = e->qlen();
    a.enabled = e->enabled();
    a.waitable = e->waitable();
    a.cno = cno_ref(e->cno());
    a.config = e->mode();
    if (e->changes() == before) break; // otherwise another thread has changed a value meanwhile
  }
  a.completion_vector = e->completion_vector();
  return a;
}

}}} // namespace dat::v0::detail
