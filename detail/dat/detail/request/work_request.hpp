// An operation as the library keeps it until it is posted, and its conversion to an ibv_send_wr or ibv_recv_wr.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/cookie.hpp>
#include <dat/fwd.hpp>
#include <dat/privileges.hpp>
#include <dat/status.hpp>

#include <dat/detail/request/sge_list.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace dat { inline namespace v0 { namespace detail {

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

/// Whether `ep.post` takes a type as a receive, or as a request.
template <class D>
inline constexpr bool is_recv = false;
template <class D>
inline constexpr bool is_request = false;
/// Whether verbs posts a request alone, by functions of an extended queue pair, so that a chain cannot contain it.
template <class D>
inline constexpr bool is_posted_alone = false;

/// The opcode of an atomic write, which verbs.h names since rdma-core 44. The value is the kernel's.
inline constexpr ibv_wr_opcode atomic_write_opcode = static_cast<ibv_wr_opcode>(15);
/// The opcode of a flush, which verbs.h names since rdma-core 45.
inline constexpr ibv_wr_opcode flush_opcode = static_cast<ibv_wr_opcode>(14);
/// Placement types of flushes, as in verbs: IBV_FLUSH_GLOBAL and IBV_FLUSH_PERSISTENT.
inline constexpr std::uint64_t flush_type_global = 1;
inline constexpr std::uint64_t flush_type_persistent = 2;
/// The bit of `swap` by which a flush covers the whole region. The bits below it are the verbs placement type.
inline constexpr std::uint64_t flush_region = std::uint64_t{1} << 8;
/// The length of a flush has 32 bits on the wire.
inline constexpr std::uint64_t longest_flush = 0xffff'ffff;

/// Flags of a request. The values are those of verbs, so that posting copies them.
enum class send_flag : unsigned {
  fence = IBV_SEND_FENCE,
  signaled = IBV_SEND_SIGNALED,
  solicited = IBV_SEND_SOLICITED,
  inlined = IBV_SEND_INLINE
};

/// The members of a request other than its local segments.
struct request_header {
  dat::cookie cookie{};
  raw_remote remote; ///< only for RDMA and atomics
  ibv_wr_opcode opcode = IBV_WR_SEND;
  unsigned flags = IBV_SEND_SIGNALED;
  std::uint32_t imm = 0;         ///< immediate data in the consumer's byte order, or the key to invalidate
  std::uint64_t compare_add = 0; ///< only for atomics, like `swap`; for an atomic write, the word
  std::uint64_t swap = 0;        ///< for a flush: its placement type, and flush_region
  bool no_notify = false;        ///< its completion is no notification

  request_header() noexcept = default;
  /// Copies member by member: a copy as one block would put a request from registers into memory.
  [[gnu::always_inline]] request_header(const request_header& o) noexcept
      : cookie(o.cookie),
        remote{o.remote.address, o.remote.length, o.remote.key},
        opcode(o.opcode),
        flags(o.flags),

        imm(o.imm),
        compare_add(o.compare_add),
        swap(o.swap),
        no_notify(o.no_notify) {}
  request_header& operator=(const request_header&) noexcept = default;

  void start(dto_operation op) noexcept {
    opcode = op == dto_operation::send                   ? IBV_WR_SEND
             : op == dto_operation::send_with_invalidate ? IBV_WR_SEND_WITH_INV
             : op == dto_operation::rdma_write           ? IBV_WR_RDMA_WRITE
             : op == dto_operation::fetch_and_add        ? IBV_WR_ATOMIC_FETCH_AND_ADD
             : op == dto_operation::rdma_read            ? IBV_WR_RDMA_READ
             : op == dto_operation::atomic_write         ? atomic_write_opcode
             : op == dto_operation::flush                ? flush_opcode
                                                         : IBV_WR_ATOMIC_CMP_AND_SWP;
  }
  template <class R>
  void target(const R& segment) noexcept {
    target(segment_access::raw(segment));
  }
  void target(const raw_remote& there) noexcept {
    remote.address = there.address;
    remote.length = there.length;
    remote.key = there.key;
  }
  void set(send_flag f) noexcept { flags |= static_cast<unsigned>(f); }
  void suppress_completion() noexcept { flags &= ~static_cast<unsigned>(IBV_SEND_SIGNALED); }
  void immediate(std::uint32_t value) noexcept {
    imm = value;
    if (opcode == IBV_WR_SEND) opcode = IBV_WR_SEND_WITH_IMM;
    if (opcode == IBV_WR_RDMA_WRITE) opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  }

  [[nodiscard]] dto_operation operation() const noexcept {
    switch (static_cast<int>(opcode)) { // older headers have no enumerators for some
    case IBV_WR_SEND_WITH_IMM:
      return dto_operation::send_immediate;
    case IBV_WR_SEND_WITH_INV:
      return dto_operation::send_with_invalidate;
    case IBV_WR_RDMA_WRITE:
      return dto_operation::rdma_write;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return dto_operation::rdma_write_immediate;
    case IBV_WR_RDMA_READ:
      return dto_operation::rdma_read;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return dto_operation::fetch_and_add;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return dto_operation::compare_and_swap;
    case atomic_write_opcode:
      return dto_operation::atomic_write;
    case flush_opcode:
      return dto_operation::flush;
    default:
      return dto_operation::send;
    }
  }
  [[nodiscard]] bool is_inlined() const noexcept { return (flags & IBV_SEND_INLINE) != 0; }
  [[nodiscard]] bool is_immediate() const noexcept {
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  [[nodiscard]] bool is_one_sided() const noexcept {
    return opcode != IBV_WR_SEND && opcode != IBV_WR_SEND_WITH_IMM && opcode != IBV_WR_SEND_WITH_INV;
  }
  [[nodiscard]] bool is_read() const noexcept { return opcode == IBV_WR_RDMA_READ; }
  [[nodiscard]] bool is_atomic() const noexcept {
    return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  }
  [[nodiscard]] bool is_atomic_write() const noexcept { return opcode == atomic_write_opcode; }
  [[nodiscard]] bool is_flush() const noexcept { return opcode == flush_opcode; }
  [[nodiscard]] bool covers_region() const noexcept { return (swap & flush_region) != 0; }

  /// Writes the members that the operation needs. Verbs reads no others, and clearing all 128 bytes would cost as much
  /// as the rest of a post. The caller sets wr_id, next and the segments.
  [[gnu::always_inline]] void fill(ibv_send_wr& wr) const noexcept {
    wr.opcode = opcode;
    wr.send_flags = flags;
    if (opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM) wr.imm_data = imm;
    if (opcode == IBV_WR_SEND_WITH_INV) wr.invalidate_rkey = imm;
    if (is_atomic()) {
      wr.wr.atomic.remote_addr = remote.address;
      wr.wr.atomic.compare_add = compare_add;
      if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) wr.wr.atomic.swap = swap;
      wr.wr.atomic.rkey = remote.key;
    } else if (is_one_sided()) {
      wr.wr.rdma.remote_addr = remote.address;
      wr.wr.rdma.rkey = remote.key;
    }
  }
  /// The members that `fill` has written.
  void restore(const ibv_send_wr& wr) noexcept {
    opcode = wr.opcode;
    flags = wr.send_flags;
    if (opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM) imm = wr.imm_data;
    if (opcode == IBV_WR_SEND_WITH_INV) imm = wr.invalidate_rkey;
    if (is_atomic()) {
      remote = {wr.wr.atomic.remote_addr, 0, wr.wr.atomic.rkey};
      compare_add = wr.wr.atomic.compare_add;
      if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) swap = wr.wr.atomic.swap;
    } else if (is_one_sided()) {
      remote = {wr.wr.rdma.remote_addr, 0, wr.wr.rdma.rkey};
    }
  }
};

template <std::size_t N>
struct send_request : request_header {
  static constexpr std::size_t max_segments = N;
  sge_list<N> data;

  send_request() noexcept = default;
  [[gnu::always_inline]] send_request(const send_request& o) noexcept : request_header(o) { data.assign(o.data); }
  send_request& operator=(const send_request&) noexcept = default;

  using request_header::start;
  template <class S>
  void start(dto_operation op, const S& segment) noexcept {
    start(op);
    data.start(raw_of(segment));
  }
  template <class I>
  void start_list(dto_operation op, const I& list) noexcept {
    start(op);
    data.assign(sge_list_access::of(list));
  }
};

template <std::size_t N>
struct recv_request {
  static constexpr std::size_t max_segments = N;
  sge_list<N> data;
  dat::cookie cookie{};
  bool no_notify = false;

  recv_request() noexcept = default;
  [[gnu::always_inline]] recv_request(const recv_request& o) noexcept : cookie(o.cookie), no_notify(o.no_notify) {
    data.assign(o.data);
  }
  recv_request& operator=(const recv_request&) noexcept = default;
};

/// A work request with its segments.
template <class Wr, std::size_t N>
struct post_link {
  Wr wr;
  ibv_sge segments[N == 0 ? 1 : N];
};

/// The number of work requests of a chain before `end`.
template <class Wr>
[[nodiscard]] std::uint32_t chain_length(const Wr* wr, const Wr* end) noexcept {
  std::uint32_t n = 0;
  for (; wr && wr != end; wr = wr->next) ++n;
  return n;
}

struct request_access {
  template <class D>
  static const auto& of(const D& dto) noexcept {
    return dto.wr_;
  }
  template <std::size_t N>
  static const send_request<N>& of(const send_request<N>& r) noexcept {
    return r;
  }
  template <class D>
  static auto& change(D& dto) noexcept {
    return dto.wr_;
  }
};

}}} // namespace dat::v0::detail
