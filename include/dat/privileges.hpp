// Memory privileges: what operations the local adapter and remote peers may apply to registered memory.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>

namespace dat { inline namespace v0 {

/// Access rights of a memory region, as bits. The values are those of DAT_MEM_PRIV_FLAGS (uDAPL 2.0 §6.7.2.1);
/// `remote_atomic` is the first extension bit (IB extensions). The bits of flushes are dat's own: uDAPL has none, and
/// uses neither of these bits.
enum class mem_priv : std::uint32_t {
  none = 0x00,
  local_read = 0x01,       ///< source of send, RDMA write
  remote_read = 0x02,      ///< peers may RDMA read it
  local_write = 0x10,      ///< sink of recv, RDMA read, atomics
  remote_write = 0x20,     ///< peers may RDMA write it
  remote_atomic = 0x40,    ///< peers may do 64-bit atomics on it
  flush_global = 0x04,     ///< peers may flush it, so that every agent sees it
  flush_persistent = 0x08, ///< peers may flush it to persistent memory
};

[[nodiscard]] constexpr mem_priv operator|(mem_priv a, mem_priv b) noexcept {
  return static_cast<mem_priv>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
[[nodiscard]] constexpr mem_priv operator&(mem_priv a, mem_priv b) noexcept {
  return static_cast<mem_priv>(static_cast<std::uint32_t>(a) & static_cast<std::uint32_t>(b));
}

/// True when every right in `wanted` is in `held`.
[[nodiscard]] constexpr bool includes(mem_priv held, mem_priv wanted) noexcept { return (held & wanted) == wanted; }

/// A set of rights that is known at compile time: a combination of the constants below, such as `dat::local_write |
/// dat::remote_write`. Registration takes one, and every segment of the region has it in its type, so that a post with
/// a missing right does not compile.
template <mem_priv P>
struct privileges {
  static_assert((static_cast<std::uint32_t>(P) & ~0x7fu) == 0,
                "dat: privileges are made of dat::local_read and the other constants of this kind");
  static constexpr mem_priv value = P;
  /// For template arguments: `dat::lmr<char, dat::local_read | dat::local_write>`.
  constexpr operator mem_priv() const noexcept { return P; } // NOLINT(google-explicit-constructor)
};

template <mem_priv A, mem_priv B>
[[nodiscard]] constexpr privileges<(A | B)> operator|(privileges<A>, privileges<B>) noexcept {
  return {};
}

inline constexpr privileges<mem_priv::local_read> local_read{};       ///< the adapter reads it
inline constexpr privileges<mem_priv::local_write> local_write{};     ///< the adapter writes it
inline constexpr privileges<mem_priv::remote_read> remote_read{};     ///< peers read it
inline constexpr privileges<mem_priv::remote_write> remote_write{};   ///< peers write it
inline constexpr privileges<mem_priv::remote_atomic> remote_atomic{}; ///< peers run atomics on it
/// Peers flush it, so that every agent sees it (ib::flush). The adapter must have flushes.
inline constexpr privileges<mem_priv::flush_global> flush_global{};
/// Peers flush it to persistent memory (ib::flush). The adapter must have flushes, and the memory must be persistent.
inline constexpr privileges<mem_priv::flush_persistent> flush_persistent{};

namespace detail {
/// The rights of peers.
inline constexpr mem_priv peer_rights = mem_priv::remote_read | mem_priv::remote_write | mem_priv::remote_atomic |
                                        mem_priv::flush_global | mem_priv::flush_persistent;
} // namespace detail

/// The rights as text, e.g. "local_read|remote_write"; "none" for none. Allocates.
[[nodiscard]] inline std::string to_string(mem_priv p) {
  constexpr struct {
    mem_priv bit;
    const char* name;
  } names[] = {{mem_priv::local_read, "local_read"},
               {mem_priv::remote_read, "remote_read"},
               {mem_priv::local_write, "local_write"},
               {mem_priv::remote_write, "remote_write"},
               {mem_priv::remote_atomic, "remote_atomic"},
               {mem_priv::flush_global, "flush_global"},
               {mem_priv::flush_persistent, "flush_persistent"}};
  std::string text;
  for (const auto& n : names)
    if (includes(p, n.bit)) {
      if (!text.empty()) text += '|';
      text += n.name;
    }
  return text.empty() ? "none" : text;
}

}} // namespace dat::v0
