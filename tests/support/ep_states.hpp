// The states of endpoints, for tests that go through all of them.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/ep_attributes.hpp>

namespace support {

/// The states in the order of DAT_EP_STATE.
inline constexpr dat::ep_state all_ep_states[] = {
    dat::ep_state::unconnected,
    dat::ep_state::unconfigured_unconnected,
    dat::ep_state::reserved,
    dat::ep_state::unconfigured_reserved,
    dat::ep_state::passive_connection_pending,
    dat::ep_state::unconfigured_passive,
    dat::ep_state::active_connection_pending,
    dat::ep_state::tentative_connection_pending,
    dat::ep_state::unconfigured_tentative,
    dat::ep_state::connected,
    dat::ep_state::disconnect_pending,
    dat::ep_state::disconnected,
    dat::ep_state::completion_pending,
};

} // namespace support
