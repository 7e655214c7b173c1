// Forward declarations of every handle, for headers that only pass them on.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace dat::inline v0 {

enum class streams : std::uint32_t;
enum class mem_priv : std::uint32_t;
enum class ep_state : std::uint8_t;

/// Service of an endpoint: reliable connection (InfiniBand RC).
struct rc {};
/// Service of an endpoint: unreliable datagrams (InfiniBand UD); see <dat/ud.hpp>.
struct ud {};

/// A service with its receives from a shared receive queue: what `pz::create_ep` makes when it is given an srq.
template <class Service>
struct with_srq {};

class ia;
class cno;
class pz;
class psp;
class rmr;
class rsp;
class csp;
class cr;
struct ep_changes;
struct ep_params;
struct ep_status;
struct ep_recv_buffers;
struct communicator;
class ep_ref;
namespace ib {
struct datagram_evds;
class address_handle;
class descriptor;
class local_word;
class remote_word;
} // namespace ib
class srq;
class srq_ref;
template <class Service>
class ep;
template <streams S>
class evd;
template <streams S>
class evd_ref;
template <class T, mem_priv P>
class lmr;
template <class T, mem_priv P>
class local_segment;
template <class T, mem_priv P>
class remote_segment;

namespace detail {
struct event_access;    // makes events, whose constructors are not the consumer's
struct group_access;    // a datagram endpoint, for its multicast groups
struct address_access;  // makes address handles
struct datagram_access; // what is in a datagram and its events
struct memory_access;   // regions, for the headers of further kinds of memory
struct core_access;     // what is behind a handle, for the headers that join dat to something else
} // namespace detail

} // namespace dat::inline v0
