// Remote segments from a peer: any bytes result in an error, or in a segment inside the 64-bit address space.
// SPDX-License-Identifier: BSL-1.0
#include "input.hpp"

#include <dat/dat.hpp>
#include <dat/ib.hpp>

#include <algorithm>
#include <limits>

namespace {

using namespace fuzz;

struct odd {
  std::byte bytes[24];
};

/// Slices stay inside the segment.
template <class S>
void cut(const S& s, input in) {
  require(s.size_bytes() <= std::numeric_limits<std::uint64_t>::max() - s.address(), "a segment beyond the end");
  const auto inside = [&](const auto& part) {
    require(part.size_bytes() == 0 ||
                (part.address() >= s.address() && part.size_bytes() <= s.size_bytes() - (part.address() - s.address())),
            "a piece outside of its segment");
    require(part.rkey() == s.rkey(), "another key");
  };
  const auto first = in.number<std::uint64_t>();
  const auto count = in.number<std::uint64_t>();
  if (const auto part = s.slice(first, count)) {
    require(part.value().size() == count, "a slice of another size");
    inside(part.value());
  }
  if (const auto part = s.template as<std::uint64_t>(first, count)) {
    require(part.value().address() % alignof(std::uint64_t) == 0, "a misaligned piece");
    inside(part.value());
  }
  if (const auto part = s.template as<odd>(first, count)) inside(part.value());
}

template <class T, dat::mem_priv P>
void read(std::span<const std::byte> bytes) {
  using segment = dat::remote_segment<T, P>;
  const auto s = segment::from_wire(bytes);
  if (!s) return;
  require(bytes.size() >= segment::wire_size, "too few bytes");
  const auto again = s.value().to_wire();
  require(std::equal(again.begin(), again.begin() + 22, bytes.begin()), "the segment has other bytes");
  const auto rest = bytes.subspan(segment::wire_size);
  const input in(reinterpret_cast<const std::uint8_t*>(rest.data()), rest.size());
  cut(s.value(), in);
  if constexpr (std::is_same_v<T, std::uint64_t> && dat::includes(P, dat::mem_priv::remote_atomic))
    if (const auto word = s.value().word(input(in).number<std::uint64_t>()))
      require(s.value().address() % 8 == 0, "a misaligned word");
  input more = in;
  const auto address = more.number<std::uint64_t>();
  const auto count = more.number<std::uint64_t>();
  if (const auto made = segment::make(address, count, 7)) cut(made.value(), in);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const auto all = std::as_bytes(std::span(bytes, size));
  read<char, dat::mem_priv::remote_read>(all);
  read<std::uint64_t, dat::mem_priv::remote_read | dat::mem_priv::remote_write>(all);
  read<std::uint64_t, dat::mem_priv::remote_atomic>(all);
  read<odd, dat::mem_priv::remote_write>(all);
  return 0;
}
