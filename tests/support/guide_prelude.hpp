// The names that the blocks of docs/guide.md may use: each block becomes the body of a function after this prelude.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/batch.hpp>
#include <dat/credits.hpp>
#include <dat/dat.hpp>
#include <dat/registration_cache.hpp>
#include <dat/try.hpp>
#include <iostream>
#include <poll.h>

namespace guide {

using namespace std::chrono_literals;
using rights = dat::privileges<dat::mem_priv::local_read | dat::mem_priv::local_write>;

extern dat::ia ia;
extern dat::pz pz;
extern dat::evd<dat::stream::dto | dat::stream::connection | dat::stream::connection_requests> evd;
extern dat::ep<dat::rc> ep;
extern dat::ep<dat::rc> server;
extern dat::lmr<char, rights::value> in;
extern dat::lmr<char, rights::value> out;
extern dat::remote_segment<char, dat::mem_priv::remote_write> there;
extern dat::ia_address address;
extern std::span<char> buffer;
struct session {
  bool over = false;
};

} // namespace guide
