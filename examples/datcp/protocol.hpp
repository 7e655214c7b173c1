// The protocol of datcp: the greeting in the private data, and the messages.
//
// All numbers are big-endian on the wire. Every structure lists its fields once, in `fields`, and the same list writes
// and reads it. A reader checks every length and throws protocol_error.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dat.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace datcp {

/// The peer sent data that does not follow this protocol.
struct protocol_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class writer {
public:
  template <class... Field>
  void operator()(const Field&... fields) {
    (put(fields), ...);
  }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

private:
  template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void put(T value) {
    for (std::size_t shift = 8 * sizeof(T); shift > 0; shift -= 8)
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (shift - 8)));
  }
  template <std::size_t N>
  void put(const std::array<std::byte, N>& raw) {
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  void put(const std::string& text) {
    put(static_cast<std::uint16_t>(text.size()));
    const auto raw = std::as_bytes(std::span(text));
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  std::vector<std::byte> bytes_;
};

class reader {
public:
  explicit reader(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}
  template <class... Field>
  void operator()(Field&... fields) {
    (get(fields), ...);
  }
  [[nodiscard]] bool at_end() const noexcept { return rest_.empty(); }

private:
  std::span<const std::byte> take(std::size_t count) {
    if (count > rest_.size()) throw protocol_error("a message ends too early");
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void get(T& value) {
    std::uint64_t number = 0;
    for (const std::byte b : take(sizeof(T))) number = number << 8 | std::to_integer<std::uint64_t>(b);
    value = static_cast<T>(number);
  }
  void get(bool& value) {
    std::uint8_t number = 0;
    get(number);
    value = number != 0;
  }
  template <std::size_t N>
  void get(std::array<std::byte, N>& raw) {
    const auto from = take(N);
    std::memcpy(raw.data(), from.data(), N);
  }
  void get(std::string& text) {
    std::uint16_t length = 0;
    get(length);
    const auto from = take(length);
    text.assign(reinterpret_cast<const char*>(from.data()), from.size());
  }
  std::span<const std::byte> rest_;
};

// --- the greeting -------------------------------------------------------------------------------------------------

inline constexpr std::array<std::byte, 8> magic = {std::byte{'d'}, std::byte{'a'}, std::byte{'t'}, std::byte{'c'},
                                                   std::byte{'p'}, std::byte{0},   std::byte{0xD}, std::byte{0xA}};
inline constexpr std::uint16_t protocol_version = 1;

/// The ring of blocks that each side offers: `blocks` pieces of `block_size` bytes.
struct geometry {
  std::uint32_t block_size = 256 * 1024;
  std::uint16_t blocks = 16;

  static constexpr std::uint32_t min_block_size = 512, max_block_size = 4 * 1024 * 1024;
  static constexpr std::uint16_t max_blocks = 256;
  [[nodiscard]] bool valid() const noexcept {
    return block_size >= min_block_size && block_size <= max_block_size && blocks > 0 && blocks <= max_blocks;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return std::size_t{block_size} * blocks; }
};

using remote_ring = dat::remote_segment<std::byte, dat::mem_priv::remote_write>;

/// Private data of the connection request and of the acceptance: 40 of the 56 bytes that rdma_cm leaves a consumer. The
/// client offers its limits; the server replies with the values in force, which are never higher. The ring's address
/// and key are included, so that data can flow as soon as the connection is established.
struct greeting {
  std::array<std::byte, 8> protocol = magic;
  std::uint16_t version = protocol_version;
  std::uint16_t blocks = 0;
  std::uint32_t block_size = 0;
  remote_ring::wire ring{};
  void fields(auto& f) { f(protocol, version, blocks, block_size, ring); }
};

/// Private data of a refusal.
struct refusal {
  std::array<std::byte, 8> protocol = magic;
  std::uint16_t version = protocol_version;
  std::string reason{}; // at most 44 bytes
  void fields(auto& f) { f(protocol, version, reason); }
};

// --- messages -----------------------------------------------------------------------------------------------------

using checksum = std::array<std::byte, 16>; ///< XXH3, 128 bits

/// Client: copy `path` of the server to me, or take what I send and store it as (or in) `path`.
struct request {
  enum class kind : std::uint8_t { get = 1, put = 2 } what = kind::get;
  bool recursive = false;
  bool resume = false;
  bool into_directory = false; ///< put: `path` must be a directory
  std::string path{};
  void fields(auto& f) { f(what, recursive, resume, into_directory, path); }
};

/// Server: the request is accepted, or the reason why it is refused.
struct reply {
  bool ok = false;
  std::string text{};
  void fields(auto& f) { f(ok, text); }
};

/// Sender, first: the total size, for the progress bar.
struct total {
  std::uint64_t bytes = 0;
  void fields(auto& f) { f(bytes); }
};

/// Sender: the next entry to copy. A directory comes before its contents.
struct entry {
  enum class kind : std::uint8_t { file = 1, directory = 2, symlink = 3, unreadable = 4 } what = kind::file;
  std::uint32_t mode = 0; ///< permission bits
  std::uint64_t size = 0; ///< bytes of a file
  std::int64_t mtime = 0; ///< ns since 1970
  std::string path{};     ///< relative, beginning with the last part of the requested path, "." if it has none
  std::string text{};     ///< the target of a symlink; the reason why an entry is unreadable
  void fields(auto& f) { f(what, mode, size, mtime, path, text); }
};

/// Receiver, in reply to every entry: continue, not needed, or the reason of a failure. If the first `part` bytes of a
/// file exist already, the message has their checksum.
struct answer {
  enum class kind : std::uint8_t { go = 1, have = 2, failed = 3 } what = kind::go;
  std::uint64_t part = 0;
  checksum sum{};
  std::string text{};
  void fields(auto& f) { f(what, part, sum, text); }
};

/// Sender: blocks follow, beginning at this offset (0, or the part whose checksum was right).
struct begin {
  std::uint64_t offset = 0;
  void fields(auto& f) { f(offset); }
};

/// Sender, after the last block of a file: its checksum, or the reason why it could not be read to its end.
struct done {
  bool ok = false;
  checksum sum{};
  std::string text{};
  void fields(auto& f) { f(ok, sum, text); }
};

/// Receiver, once for a file: stored under its name with this checksum, or the reason of a failure. A failure may come
/// before `done`.
struct stored {
  bool ok = false;
  checksum sum{};
  std::string text{};
  void fields(auto& f) { f(ok, sum, text); }
};

/// Sender: all entries were sent. Receiver: all entries are stored, or the failures at the end.
struct finished {
  std::string text{};
  void fields(auto& f) { f(text); }
};

/// Receiver: the number of blocks, counted from the beginning of the connection, that the sender may overwrite.
struct credit {
  std::uint64_t consumed = 0;
  void fields(auto& f) { f(consumed); }
};

/// The number of a message on the wire is its index in this list.
using message = std::variant<request, reply, total, entry, answer, begin, done, stored, finished, credit>;

/// The longest message: an entry with two paths.
inline constexpr std::size_t message_size = 2 * 4096 + 64;

/// Never exceeds message_size as long as no string is longer than a path.
[[nodiscard]] inline std::vector<std::byte> encode(message m) {
  writer w;
  w(static_cast<std::uint8_t>(m.index()));
  std::visit([&](auto& fields) { fields.fields(w); }, m);
  return {w.bytes().begin(), w.bytes().end()};
}

namespace detail {
template <std::size_t I = 0>
message read_message(std::size_t number, reader& from) {
  if constexpr (I == std::variant_size_v<message>) {
    throw protocol_error("a message of an unknown kind");
  } else {
    if (number != I) return read_message<I + 1>(number, from);
    std::variant_alternative_t<I, message> m;
    m.fields(from);
    return m;
  }
}
} // namespace detail

[[nodiscard]] inline message decode(std::span<const std::byte> bytes) {
  reader r(bytes);
  std::uint8_t number = 0;
  r(number);
  message m = detail::read_message(number, r);
  if (!r.at_end()) throw protocol_error("a message is too long");
  return m;
}

/// Reads private data: ignores what a later version adds.
template <class T>
[[nodiscard]] T decode_prefix(std::span<const std::byte> bytes) {
  T value;
  reader r(bytes);
  value.fields(r);
  return value;
}
template <class T>
[[nodiscard]] std::vector<std::byte> encode_prefix(T value) {
  writer w;
  value.fields(w);
  return {w.bytes().begin(), w.bytes().end()};
}

} // namespace datcp
