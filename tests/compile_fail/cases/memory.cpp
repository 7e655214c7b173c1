// <dat/pz.hpp>, <dat/lmr.hpp>: memory that cannot be registered, and operations that a region does not offer.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>
#include <dat/registration_cache.hpp>

#include <array>
#include <list>
#include <span>
#include <string>
#include <vector>

//! case: a temporary container registered
//! error: dat: the adapter uses this memory after the call: pass a container that lives on
#ifdef DAT_EXPECT_FAIL
auto temporary(dat::pz& pz) { return pz.register_memory(std::vector<char>(10), dat::local_read); }
#else
auto lasting(dat::pz& pz, std::vector<char>& v) { return pz.register_memory(v, dat::local_read); }
#endif

//! case: a range that is not contiguous
//! error: dat: register_memory takes a contiguous range
#ifdef DAT_EXPECT_FAIL
auto scattered(dat::pz& pz, std::list<char>& l) { return pz.register_memory(l, dat::local_read); }
#else
auto spanned(dat::pz& pz, std::span<char> s) { return pz.register_memory(s, dat::local_read); }
#endif

//! case: an argument that is no range
//! error: dat: register_memory takes a contiguous range
#ifdef DAT_EXPECT_FAIL
auto number(dat::pz& pz, int& i) { return pz.register_memory(i, dat::local_read); }
#else
auto numbers(dat::pz& pz, int (&i)[4]) { return pz.register_memory(i, dat::local_read); }
#endif

//! case: elements that may not be copied as bytes
//! error: dat: only trivially copyable elements can be transferred as bytes
#ifdef DAT_EXPECT_FAIL
auto strings(dat::pz& pz, std::vector<std::string>& v) { return pz.register_memory(v, dat::local_read); }
#else
auto arrays(dat::pz& pz, std::vector<std::array<char, 8>>& v) { return pz.register_memory(v, dat::local_read); }
#endif

//! case: const memory for writing
//! error: dat: const memory can be registered for local_read and remote_read only
//! tags: [REQ-140]
#ifdef DAT_EXPECT_FAIL
auto write_const(dat::pz& pz, const std::string& s) {
  return pz.register_memory(s, dat::local_read | dat::remote_write);
}
#else
auto read_const(dat::pz& pz, const std::string& s) { return pz.register_memory(s, dat::local_read | dat::remote_read); }
#endif

//! case: a receive into const memory
//! error: dat: recv needs memory registered with dat::local_write
//! tags: [DTO-084]
#ifdef DAT_EXPECT_FAIL
auto recv_const(dat::lmr<const char, dat::mem_priv::local_read>& m) { return dat::recv{m}; }
#else
auto recv_plain(dat::lmr<char, dat::mem_priv::local_write>& m) { return dat::recv{m}; }
#endif

//! case: an argument that is no right
//! error: no matching (member )?function
#ifdef DAT_EXPECT_FAIL
auto bad_rights(dat::pz& pz, std::span<char> s) { return pz.register_memory(s, 0x04); }
#else
auto good_rights(dat::pz& pz, std::span<char> s) { return pz.register_memory(s, dat::remote_read); }
#endif

//! case: a privilege bit that is none of DAT's
//! error: dat: privileges are made of dat::local_read and the other constants of this kind
//! tags: [LMR-017]
#ifdef DAT_EXPECT_FAIL
auto unknown_bit(dat::pz& pz, std::span<char> s) {
  return pz.register_memory(s, dat::privileges<dat::mem_priv(0x80)>{});
}
#else
auto known_bit(dat::pz& pz, std::span<char> s) { return pz.register_memory(s, dat::privileges<dat::mem_priv(0x02)>{}); }
#endif

//! case: a send of memory that was registered without rights
//! error: dat: send needs memory registered with dat::local_read
//! tags: [LMR-016]
#ifdef DAT_EXPECT_FAIL
auto send_unusable(const dat::lmr<char, dat::mem_priv::none>& m) { return dat::send{m}; }
#else
auto send_readable(const dat::lmr<char, dat::mem_priv::local_read>& m) { return dat::send{m}; }
#endif

//! case: a region without a remote right given to a peer
//! error: dat: register the memory with dat::remote_read, remote_write or remote_atomic first
//! tags: [LMR-018]
#ifdef DAT_EXPECT_FAIL
auto unreachable(const dat::lmr<char, dat::mem_priv::local_read>& m) { return m.remote(); }
#else
auto remotely_accessible(const dat::lmr<char, dat::mem_priv::remote_read>& m) { return m.remote(); }
#endif

//! case: a copied region
//! error: deleted
#ifdef DAT_EXPECT_FAIL
auto copied(const dat::lmr<char, dat::mem_priv::local_read>& m) { return dat::lmr<char, dat::mem_priv::local_read>(m); }
#else
auto moved(dat::lmr<char, dat::mem_priv::local_read>& m) {
  return dat::lmr<char, dat::mem_priv::local_read>(std::move(m));
}
#endif

//! case: a slice whose result is discarded
//! error: -Werror=unused-result|-Wunused-result
//! tags: [DTO-080]
#ifdef DAT_EXPECT_FAIL
void unlooked(const dat::lmr<char, dat::mem_priv::local_read>& m) { m.slice(0, 10); }
#else
bool looked(const dat::lmr<char, dat::mem_priv::local_read>& m) { return m.slice(0, 10).has_value(); }
#endif

//! case: const elements viewed as non-const ones
//! error: dat: const elements stay const
#ifdef DAT_EXPECT_FAIL
auto laundered(const dat::local_segment<const int, dat::mem_priv::local_read>& s) { return s.as<char>(0, 1); }
#else
auto kept(const dat::local_segment<const int, dat::mem_priv::local_read>& s) { return s.as<const char>(0, 1); }
#endif

//! case: an element type too large for the wire form
//! error: dat: element type too large for the wire form
#ifdef DAT_EXPECT_FAIL
auto too_large(dat::remote_segment<std::array<char, 65536>, dat::mem_priv::remote_read> s) { return s.to_wire(); }
#else
auto large(dat::remote_segment<std::array<char, 65535>, dat::mem_priv::remote_read> s) { return s.to_wire(); }
#endif

//! case: a temporary container in a cache of registrations
//! error: dat: the adapter uses this memory after the call: pass a container that lives on
#ifdef DAT_EXPECT_FAIL
auto cached_temporary(dat::registration_cache<dat::mem_priv::local_read>& c) {
  return c.find_or_register(std::vector<char>(10));
}
#else
auto cached_lasting(dat::registration_cache<dat::mem_priv::local_read>& c, std::vector<char>& v) {
  return c.find_or_register(v);
}
#endif

//! case: const memory in a cache of writable registrations
//! error: dat: const memory can be registered for local_read and remote_read only
#ifdef DAT_EXPECT_FAIL
auto cached_const(dat::registration_cache<dat::mem_priv::local_write>& c, const std::string& s) {
  return c.find_or_register(s);
}
#else
auto cached_text(dat::registration_cache<dat::mem_priv::local_read>& c, const std::string& s) {
  return c.find_or_register(s);
}
#endif

//! case: a remote segment of a cache without remote rights
//! error: dat: create the cache with dat::remote_read, remote_write or remote_atomic first
#ifdef DAT_EXPECT_FAIL
auto cached_remote(dat::cached_registration<char, dat::mem_priv::local_read>& c) { return c.remote(); }
#else
auto cached_shared(dat::cached_registration<char, dat::mem_priv::remote_read>& c) { return c.remote(); }
#endif
