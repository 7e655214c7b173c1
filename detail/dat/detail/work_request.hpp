// A DTO as the library keeps it until it is posted, and how it becomes an ibv_send_wr or ibv_recv_wr.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cookie.hpp>
#include <dat/fwd.hpp>
#include <dat/privileges.hpp>
#include <dat/status.hpp>

#include <dat/detail/gather.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace dat::inline v0::detail {

template <class S>
inline constexpr bool readable = includes(rights_of<S>, mem_priv::local_read);
template <class S>
inline constexpr bool writable = includes(rights_of<S>, mem_priv::local_write);
template <class R>
inline constexpr bool remotely_readable = includes(rights_of<R>, mem_priv::remote_read);
template <class R>
inline constexpr bool remotely_atomic = includes(rights_of<R>, mem_priv::remote_atomic);
template <class R>
inline constexpr bool remotely_writable = includes(rights_of<R>, mem_priv::remote_write);

/// Flags of a request; the values are those of verbs, so that posting copies them.
enum class send_flag : unsigned {
  fence = IBV_SEND_FENCE,
  signaled = IBV_SEND_SIGNALED,
  solicited = IBV_SEND_SOLICITED,
  inlined = IBV_SEND_INLINE
};

/// Bytes that an atomic works on.
inline constexpr std::uint32_t word_size = 8;

template <std::size_t N>
struct send_request {
  gather<N> data;
  dat::cookie cookie{};
  raw_remote remote; // only RDMA sets and reads it
  ibv_wr_opcode opcode = IBV_WR_SEND;
  unsigned flags = IBV_SEND_SIGNALED;
  dto_operation operation = dto_operation::send;
  std::uint32_t imm = 0;         // or the key to invalidate
  std::uint64_t compare_add = 0; // only atomics set and read these
  std::uint64_t swap = 0;
  bool quiet = false; // its completion is no notification

  send_request() noexcept = default;
  /// Member by member, for the compiler's sake; see gather.
  [[gnu::always_inline]] send_request(const send_request& o) noexcept { assign(o); }
  [[gnu::always_inline]] send_request& operator=(const send_request& o) noexcept { return assign(o), *this; }
  [[nodiscard, gnu::always_inline]] send_request copy() const noexcept { return *this; }
  [[gnu::always_inline]] void assign(const send_request& o) noexcept {
    data.assign(o.data);
    cookie = dat::cookie(o.cookie.value());
    opcode = o.opcode;
    at(o.remote);
    flags = o.flags;
    operation = o.operation;
    imm = o.imm;
    compare_add = o.compare_add;
    swap = o.swap;
    quiet = o.quiet;
  }

  void start(dto_operation op) noexcept {
    operation = op;
    opcode = op == dto_operation::send                   ? IBV_WR_SEND
             : op == dto_operation::send_with_invalidate ? IBV_WR_SEND_WITH_INV
             : op == dto_operation::rdma_write           ? IBV_WR_RDMA_WRITE
             : op == dto_operation::fetch_and_add        ? IBV_WR_ATOMIC_FETCH_AND_ADD
             : op == dto_operation::rdma_read            ? IBV_WR_RDMA_READ
                                                         : IBV_WR_ATOMIC_CMP_AND_SWP;
  }
  template <class S>
  void start(dto_operation op, const S& segment) noexcept {
    start(op);
    data.start(raw_of(segment));
  }
  template <class I>
  void start_list(dto_operation op, const I& list) noexcept {
    start(op);
    data.assign(gather_access::of(list));
  }
  template <class R>
  void target(const R& segment) noexcept {
    at(segment_access::raw(segment));
  }
  /// Takes as one word what is posted as one: all but atomics.
  [[gnu::always_inline]] void at(const raw_remote& there) noexcept {
    if (is_atomic()) {
      remote.address = there.address;
      remote.key = there.key;
    } else {
      copy_triplet(&remote, &there);
    }
    remote.length = there.length;
  }
  void set(send_flag f) noexcept { flags |= static_cast<unsigned>(f); }
  void suppress() noexcept { flags &= ~static_cast<unsigned>(IBV_SEND_SIGNALED); }
  void immediate(std::uint32_t value) noexcept {
    imm = value;
    if (operation == dto_operation::send) {
      operation = dto_operation::send_immediate;
      opcode = IBV_WR_SEND_WITH_IMM;
    } else if (operation == dto_operation::rdma_write) {
      operation = dto_operation::rdma_write_immediate;
      opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    }
  }

  [[nodiscard]] bool one_sided() const noexcept {
    return operation != dto_operation::send && operation != dto_operation::send_immediate &&
           operation != dto_operation::send_with_invalidate;
  }

  [[nodiscard]] bool is_atomic() const noexcept {
    return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  }

  /// Writes the members that the operation needs; verbs reads no others, and clearing 128 bytes costs as much as the
  /// rest of a post. wr_id, next and the segments are the caller's.
  template <bool Alone = false>
  [[gnu::always_inline]] void fill(ibv_send_wr& wr) const noexcept {
    wr.opcode = opcode;
#if defined(__clang__)
    // Two stores of constants. Clang makes them one of a register, and where there is one request, saves that register.
    if constexpr (Alone) asm("" : "+m"(wr.send_flags));
#endif
    wr.send_flags = flags;
    if (opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM) wr.imm_data = imm;
    if (opcode == IBV_WR_SEND_WITH_INV) wr.invalidate_rkey = imm;
    if (is_atomic()) {
      wr.wr.atomic.remote_addr = remote.address;
      wr.wr.atomic.compare_add = compare_add;
      if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) wr.wr.atomic.swap = swap;
      wr.wr.atomic.rkey = remote.key;
    } else if (one_sided()) {
      copy_triplet(&wr.wr.rdma, &remote);
    }
  }
};
static_assert(offsetof(decltype(ibv_send_wr::wr.rdma), rkey) == offsetof(raw_remote, key) &&
              sizeof(ibv_send_wr::wr.rdma) >= offsetof(raw_remote, length));

template <std::size_t N>
struct recv_request {
  detail::gather<N> gather;
  dat::cookie cookie{};
  bool quiet = false;

  [[nodiscard, gnu::always_inline]] recv_request copy() const noexcept {
    recv_request r;
    r.gather.assign(gather);
    r.cookie = cookie;
    r.quiet = quiet;
    return r;
  }
};

struct request_access {
  template <class D>
  static const auto& of(const D& dto) noexcept {
    return dto.wr_;
  }
  template <class D>
  static auto& change(D& dto) noexcept {
    return dto.wr_;
  }
};

} // namespace dat::inline v0::detail
