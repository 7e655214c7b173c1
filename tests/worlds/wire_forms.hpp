// All data that dat sends to its peers, with fixed values. Each machine must write the same bytes, and read them
// back.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/descriptor.hpp>
#include <dat/privileges.hpp>
#include <dat/rails.hpp>
#include <dat/segment.hpp>

#include <dat/detail/connection/private_data.hpp>
#include <dat/detail/datagram/ud_core.hpp>
#include <dat/detail/impl/rails_state.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <netinet/in.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace worlds {

using bytes = std::vector<std::byte>;

inline std::string to_hex(std::span<const std::byte> from) {
  std::string text;
  for (const std::byte b : from)
    for (const int shift : {4, 0}) text += "0123456789abcdef"[(std::to_integer<unsigned>(b) >> shift) & 15];
  return text;
}
/// The bytes of pairs of hexadecimal digits; any other character adds no byte.
inline bytes from_hex(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  bytes made;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    const auto high = digits.find(text[i]);
    const auto low = digits.find(text[i + 1]);
    if (high == digits.npos || low == digits.npos) return {};
    made.push_back(static_cast<std::byte>(high << 4 | low));
  }
  return made;
}

/// One form with fixed values.
struct form {
  const char* name;
  const char* golden;                        ///< the bytes on the wire, in hexadecimal
  std::size_t free_bits;                     ///< of these, the bits that have no meaning yet, or that a reader ignores
  bytes (*write)();                          ///< as this machine writes the values
  bool (*reads)(std::span<const std::byte>); ///< whether this machine reads the values
};

template <class Range>
bytes bytes_of(const Range& range) {
  return bytes(range.begin(), range.end());
}

/// The bytes of an object in memory, which an adapter would send.
template <class T>
bytes memory_of(const T& object) {
  bytes made(sizeof object);
  std::memcpy(made.data(), &object, sizeof object);
  return made;
}

// --- the values ------------------------------------------------------------------------------------------------------

using word_segment = dat::remote_segment<std::uint32_t, dat::mem_priv::remote_write>;
inline word_segment segment_value() { return word_segment::make(0x0102030405060708, 0x1020, 0xa1b2c3d4).value(); }

inline dat::detail::qp_place place_value(std::string_view host, std::uint16_t lid) {
  dat::detail::qp_place p;
  p.gid = dat::detail::gid_of(dat::ia_address::parse(host).value());
  p.lid = lid;
  p.qp_num = 0x010203;
  p.qkey = 0x11223344;
  return p;
}
inline dat::detail::direct_peer peer_value(bool ethernet) {
  dat::detail::direct_peer p;
  p.place = ethernet ? place_value("192.0.2.7", 0) : place_value("fe80::2:c903:1:2", 0x1234);
  p.psn = 0x0a0b0c;
  p.service = dat::detail::direct_peer::connections;
  p.link = ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  p.mtu = IBV_MTU_4096;
  p.reads_in = 16;
  return p;
}
inline bool same_place(const dat::detail::qp_place& a, const dat::detail::qp_place& b) {
  return std::memcmp(a.gid.raw, b.gid.raw, sizeof a.gid.raw) == 0 && a.lid == b.lid && a.qp_num == b.qp_num &&
         a.qkey == b.qkey;
}
template <bool Ethernet>
bytes write_descriptor() {
  return bytes_of(dat::detail::descriptor_access::make(peer_value(Ethernet)).to_wire());
}
template <bool Ethernet>
bool reads_descriptor(std::span<const std::byte> from) {
  const auto read = dat::ib::descriptor::from_wire(from);
  if (!read) return false;
  const auto& got = dat::detail::descriptor_access::of(read.value());
  const auto expected = peer_value(Ethernet);
  return same_place(got.place, expected.place) && got.psn == expected.psn && got.service == expected.service &&
         got.link == expected.link && got.mtu == expected.mtu && got.reads_in == expected.reads_in &&
         (!Ethernet || read.value().host() == dat::ia_address::parse("192.0.2.7").value());
}

inline constexpr std::array<std::byte, 3> consumer_data{std::byte{0xfe}, std::byte{0xdc}, std::byte{0xba}};

inline dat::detail::rail::control control_value() {
  return {dat::detail::rail::control::kind_type::credit, 3, 0x01020304, 0x1112131415161718, 0x2122232425262728};
}
inline dat::detail::rail::greeting greeting_value() { return {1, 4, 0x01020304, 0x2122232425262728}; }
inline dat::detail::rail::label label_value() {
  return {.ordered = true, .skip = true, .sequence = 0x2345, .tag = 0x6789};
}

// --- the forms -------------------------------------------------------------------------------------------------------

inline const std::array<form, 11>& forms() {
  static const std::array<form, 11> all{{
      {"segment", "01020304050607080000000000004080a1b2c3d400042001", 7 /* further rights */,
       [] { return bytes_of(segment_value().to_wire()); },
       [](std::span<const std::byte> from) {
         const auto got = word_segment::from_wire(from);
         return got && got.value().address() == segment_value().address() && got.value().rkey() == 0xa1b2c3d4 &&
                got.value().size() == 0x1020;
       }},
      {"descriptor, RoCE",
       "44415445010101020205100000010203000a0b0c112233440000000000000000"
       "00000000000000000000ffffc0000207000000000000000000000000dabb3f81",
       0, &write_descriptor<true>, &reads_descriptor<true>},
      {"descriptor, InfiniBand",
       "44415445010101020105100000010203000a0b0c112233441234000000000000"
       "fe800000000000000002c903000100020000000000000000000000002ec71654",
       0, &write_descriptor<false>, &reads_descriptor<false>},
      {"header of a datagram request",
       "4441545501031234000102031122334400000000000000000000ffffc0000207"
       "fedcba",
       11 /* a shorter length; unused bits of number and key */,
       [] {
         bytes to(dat::detail::datagram_header::size + consumer_data.size());
         dat::detail::copy_bytes(consumer_data, dat::detail::datagram_header::write(place_value("192.0.2.7", 0x1234),
                                                                                    consumer_data.size(), to.data()));
         return to;
       },
       [](std::span<const std::byte> from) {
         const auto got = dat::detail::datagram_header::read(from);
         return got && same_place(*got, place_value("192.0.2.7", 0x1234)) &&
                std::ranges::equal(from.subspan(dat::detail::datagram_header::size), consumer_data);
       }},
      {"data of a request",
       "fedcba"
       "00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
       "44415403",
       0,
       [] {
         const dat::detail::request_message message{consumer_data};
         return bytes_of(std::span(message.bytes).first(message.size));
       },
       [](std::span<const std::byte> from) {
         return std::ranges::equal(dat::detail::before_mark(from, dat::detail::request_mark), consumer_data);
       }},
      {"data of a reply",
       "fedcba"
       "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
       "44415403",
       0,
       [] {
         const dat::detail::reply_message message{consumer_data};
         return bytes_of(std::span(message.bytes).first(message.size));
       },
       [](std::span<const std::byte> from) {
         return std::ranges::equal(dat::detail::before_mark(from, dat::detail::reply_mark), consumer_data);
       }},
      {"data of a reject", "44415403fedcba", 6 /* a length beyond the end */,
       [] {
         const dat::detail::reject_message<dat::detail::max_private_data - 4> message{consumer_data};
         return bytes_of(std::span(message.bytes).first(message.size));
       },
       [](std::span<const std::byte> from) {
         return dat::detail::is_marked(from) && std::ranges::equal(dat::detail::behind_mark(from), consumer_data);
       }},
      {"address and port", "1d2fc0000207", 0,
       [] {
         const auto address = dat::ia_address::parse("192.0.2.7").value().with_port(7471);
         sockaddr_in native{};
         std::memcpy(&native, address.native_handle(), sizeof native);
         bytes made = memory_of(native.sin_port);
         const bytes host = memory_of(native.sin_addr);
         made.insert(made.end(), host.begin(), host.end());
         return made;
       },
       [](std::span<const std::byte> from) {
         sockaddr_in native{};
         native.sin_family = AF_INET;
         if (from.size() != 6) return false;
         std::memcpy(&native.sin_port, from.data(), 2);
         std::memcpy(&native.sin_addr, from.data() + 2, 4);
         const dat::ia_address got(native);
         return got.port() == 7471 && got.with_port(0) == dat::ia_address::parse("192.0.2.7").value();
       }},
      {"rails, private data", "6461747201010400010203042122232425262728", 8 /* a byte without meaning */,
       [] { return bytes_of(greeting_value().bytes()); },
       [](std::span<const std::byte> from) {
         const auto got = dat::detail::rail::greeting::read(from);
         const auto expected = greeting_value();
         return got && got->rail == expected.rail && got->rails == expected.rails && got->life == expected.life &&
                got->session == expected.session;
       }},
      {"rails, control message", "020301000102030411121314151617182122232425262728", 8 /* a byte without meaning */,
       [] {
         bytes to(dat::detail::rail::control::size);
         control_value().write(to);
         return to;
       },
       [](std::span<const std::byte> from) {
         const auto got = dat::detail::rail::control::read(from);
         const auto expected = control_value();
         return got && got->kind == expected.kind && got->rail == expected.rail && got->life == expected.life &&
                got->count == expected.count && got->session == expected.session;
       }},
      // The adapter sends these four bytes in the order of the memory.
      {"rails, immediate data", "896745e3", 0, [] { return memory_of(label_value().immediate()); },
       [](std::span<const std::byte> from) {
         std::uint32_t immediate = 0;
         if (from.size() != sizeof immediate) return false;
         std::memcpy(&immediate, from.data(), sizeof immediate);
         const auto got = dat::detail::rail::label::of(immediate);
         const auto expected = label_value();
         return got.ordered == expected.ordered && got.skip == expected.skip && got.sequence == expected.sequence &&
                got.tag == expected.tag;
       }},
  }};
  return all;
}

} // namespace worlds
