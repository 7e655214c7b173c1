// Descriptors as text, for the channel between two processes of a test.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "support.hpp"

#include <dat/descriptor.hpp>
#include <dat/ud.hpp>

#include <support/sealed_descriptor.hpp>

#include <cstdio>

namespace device {
namespace descriptor_text {

using dat::ib::descriptor;
inline constexpr auto ud_streams = all_streams | dat::stream::datagrams;

inline std::string to_hex(std::span<const std::byte> s) {
  std::string text;
  for (const std::byte b : s) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(b));
    text += two;
  }
  return text;
}
inline std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

inline descriptor::wire with(descriptor::wire w, std::size_t at, std::initializer_list<unsigned> bytes) {
  for (const unsigned b : bytes) w[at++] = static_cast<std::byte>(b);
  support::seal(w);
  return w;
}

} // namespace descriptor_text

using namespace descriptor_text;

} // namespace device
