// Definitions of ia_handle.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/detail/adapter/ia_handle.hpp>

namespace dat { inline namespace v0 { namespace detail {

DAT_DECL void release_adapter(ref<ia_core>& owner) noexcept {
  owner->release_adapter();
  owner.reset();
}

DAT_DECL expected<void> ia_handle::close(bool graceful) noexcept {
  ia_core* const core = get();
  if (core->foreign()) {
    drop();
    return error(return_type::invalid_handle, return_subtype::handle_ia)
        .at("ia.close", object_kind::ia)
        .hint(foreign_hint);
  }
  const bool can_close = core->can_close_here();
  if (graceful && (can_close ? core->in_use() : core->known_in_use()))
    return error(return_type::invalid_state, return_subtype::ia_in_use)
        .at("ia.close", object_kind::ia)
        .hint("Close what was made from the ia first, or close the ia abruptly.");
  if (!can_close)
    return error(return_type::insufficient_resources)
        .at("ia.close", object_kind::ia)
        .hint("Another call of dat is under way: one that a signal handler has interrupted, or one of another thread. "
              "Close the ia again when that call has returned.");
  if (graceful)
    core->close_gracefully();
  else
    core->close_abruptly();
  drop();
  return success();
}

}}} // namespace dat::v0::detail
