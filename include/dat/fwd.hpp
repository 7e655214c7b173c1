// Forward declarations of every handle, for headers that only pass them on.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace dat { inline namespace v0 {

enum class streams : std::uint32_t;
enum class mem_priv : std::uint32_t;
enum class ep_state : std::uint8_t;

/// Service of an endpoint: reliable connection (InfiniBand RC).
struct rc {};
/// Service of an endpoint: unreliable datagrams (InfiniBand UD); see <dat/ud.hpp>.
struct ud {};

/// A service whose receives come from a shared receive queue: the service of endpoints that `pz::create_ep` creates
/// with an srq.
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
struct address_access;  // creates address handles
struct datagram_access; // a datagram and its events
struct core_access;     // gives the core of a handle to headers that combine dat with other libraries
} // namespace detail

}} // namespace dat::v0
