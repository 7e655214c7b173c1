// Buffers with a data section: receives append to it, sends send it (as the jobs of DOCA RDMA do).
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dto.hpp>
#include <dat/iov.hpp>
#include <dat/privileges.hpp>
#include <dat/segment.hpp>

#include <dat/detail/base/utility.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace dat { inline namespace v0 {

/// A chain of up to `N` pieces of registered memory. The first bytes of each piece are its data section, the rest is
/// room. Sends and writes take the data, in the order of the chain. Receives and reads fill the room. When the event
/// has arrived, `append` turns the room into data, so a failed operation changes nothing.
///
///     dat::buffer<4, rights> inbox;
///     inbox.push_back(piece);
///     ep.post(dat::recv{inbox.room()}.cookie(1));
///     ...
///     inbox.append(event.bytes());
///   ep.post(dat::send{inbox.data()});                      // all that has arrived so far
///
/// Copyable; owns no memory.
/// Allocates: never.
/// Thread safety: a value.
template <std::size_t N, mem_priv P>
class buffer {
public:
  using piece = local_segment<std::byte, P>;

  buffer() noexcept = default;
  /// One piece, of which the first `data` bytes are data.
  explicit buffer(const piece& whole, std::size_t data = 0) noexcept { (void)push_back(whole, data); }

  /// Appends a piece to the chain. Returns false, and changes nothing, when the chain has N pieces or `data` exceeds
  /// the piece.
  [[nodiscard]] bool push_back(const piece& whole, std::size_t data = 0) noexcept {
    if (count_ == N || data > whole.size_bytes()) return false;
    pieces_[count_++] = {whole, static_cast<std::uint32_t>(data)};
    return true;
  }

  /// The bytes of data in all pieces, and of room after them.
  [[nodiscard]] std::size_t data_size() const noexcept {
    std::size_t n = 0;
    for (const part& p : parts()) n += p.data;
    return n;
  }
  [[nodiscard]] std::size_t room_size() const noexcept {
    std::size_t n = 0;
    for (const part& p : parts()) n += p.whole.size_bytes() - p.data;
    return n;
  }
  [[nodiscard]] std::size_t pieces() const noexcept { return count_; }
  /// Bytes of data in one piece, and these bytes.
  [[nodiscard]] std::size_t data_size(std::size_t i) const noexcept { return pieces_[i].data; }
  [[nodiscard]] std::span<const std::byte> bytes(std::size_t i) const noexcept {
    return {pieces_[i].whole.data(), pieces_[i].data};
  }

  /// The data sections, for sends and writes.
  [[nodiscard]] iov<N, P> data() const noexcept {
    iov<N, P> list;
    for (const part& p : parts()) (void)list.push_back(cut(p.whole, 0, p.data));
    return list;
  }
  /// The first `most` bytes of the room, for receives and reads.
  [[nodiscard]] iov<N, P> room(std::size_t most = ~std::size_t{0}) const noexcept {
    iov<N, P> list;
    for (const part& p : parts()) {
      const std::size_t n = detail::min(p.whole.size_bytes() - p.data, most);
      (void)list.push_back(cut(p.whole, p.data, n));
      most -= n;
    }
    return list;
  }
  /// The room that an RDMA read of the data of `source` fills: the smaller of both.
  template <class Remote>
  [[nodiscard]] iov<N, P> room_for(const Remote& source) const noexcept {
    return room(static_cast<std::size_t>(source.data_size()));
  }

  /// Turns the first `bytes` of the room into data, piece after piece. Returns false, and changes nothing, when there
  /// is less room.
  [[nodiscard]] bool append(std::size_t bytes) noexcept {
    if (bytes > room_size()) return false;
    for (std::size_t i = 0; i < count_; ++i) {
      part& p = pieces_[i];
      const std::size_t n = detail::min(p.whole.size_bytes() - p.data, bytes);
      p.data += static_cast<std::uint32_t>(n);
      bytes -= n;
    }
    return true;
  }
  /// Turns all data into room.
  void clear() noexcept {
    for (std::size_t i = 0; i < count_; ++i) pieces_[i].data = 0;
  }

private:
  struct part {
    piece whole;
    std::uint32_t data = 0;
  };
  [[nodiscard]] std::span<const part> parts() const noexcept { return {pieces_.data(), count_}; }
  [[nodiscard]] static piece cut(const piece& whole, std::size_t first, std::size_t count) noexcept {
    auto s = whole.slice(first, count); // inside, always
    return s ? s.assume_value() : piece();
  }
  std::array<part, N> pieces_{};
  std::size_t count_ = 0;
};

/// A peer's buffer of one piece, with this side's count of its data: RDMA writes append to its data section.
///
///     ep.post(dat::rdma_write{mine.data(), theirs.room()});
///     ...
///     theirs.append(mine.data_size());
template <mem_priv P>
class remote_buffer {
public:
  using piece = remote_segment<std::byte, P>;

  remote_buffer() noexcept = default;
  explicit remote_buffer(const piece& whole, std::uint64_t data = 0) noexcept
      : whole_(whole), data_(detail::min(data, whole.size_bytes())) {}

  [[nodiscard]] std::uint64_t data_size() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t room_size() const noexcept { return whole_.size_bytes() - data_; }
  /// The segments that an RDMA read reads, and that an RDMA write writes to. `post` refuses a write that is longer than
  /// the room with `length_error`.
  [[nodiscard]] piece data() const noexcept { return cut(0, data_); }
  [[nodiscard]] piece data(std::uint64_t most) const noexcept { return cut(0, detail::min(data_, most)); }
  [[nodiscard]] piece room() const noexcept { return cut(data_, room_size()); }
  /// Counts `bytes` that were written. Returns false when there is less room.
  [[nodiscard]] bool append(std::uint64_t bytes) noexcept {
    if (bytes > room_size()) return false;
    data_ += bytes;
    return true;
  }

private:
  [[nodiscard]] piece cut(std::uint64_t first, std::uint64_t count) const noexcept {
    auto s = whole_.slice(first, count);
    return s ? s.assume_value() : piece();
  }
  piece whole_;
  std::uint64_t data_ = 0;
};

}} // namespace dat::v0
