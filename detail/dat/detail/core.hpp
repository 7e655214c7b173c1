// All core objects and their definitions, in the order in which they need each other.
// SPDX-License-Identifier: BSL-1.0
#pragma once

// clang-format off
#include <dat/detail/ia_core.hpp>
#include <dat/detail/pz_core.hpp>
#include <dat/detail/connection_base.hpp>
#include <dat/detail/event_queue.hpp>
#include <dat/detail/srq_core.hpp>
#include <dat/detail/cno_core.hpp>
#include <dat/detail/evd_core.hpp>
#include <dat/detail/ep_connection.hpp>
#include <dat/detail/ep_core.hpp>
#include <dat/detail/service_point.hpp>

#include <dat/detail/evd_impl.hpp>
#include <dat/detail/ep_impl.hpp>
#include <dat/detail/ep_connection_impl.hpp>
#include <dat/detail/ia_impl.hpp>
// clang-format on
