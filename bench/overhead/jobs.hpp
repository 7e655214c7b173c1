// The jobs that are measured: each is done with hand-written verbs and with dat, on the same queues.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dat.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace overhead {

/// Operations that the jobs of several do at a time.
inline constexpr long at_a_time = 16;

inline constexpr auto rights = dat::local_read | dat::local_write | dat::remote_read | dat::remote_write;
using memory = dat::lmr<char, decltype(rights)::value>;
using local = dat::local_segment<char, decltype(rights)::value>;
using remote = dat::remote_segment<char, decltype(rights)::value>;
inline constexpr auto word_rights = dat::local_write | dat::remote_atomic;
using words = dat::lmr<std::uint64_t, decltype(word_rights)::value>;

/// A connected endpoint, whose completions go to an evd of streams::dto alone or to one that merges streams.
template <dat::streams S>
struct end {
  dat::evd<S> evd;
  dat::ep<dat::rc> ep;
};

/// One whose receives come from a shared receive queue.
struct shared_end {
  dat::evd<dat::dto> evd;
  dat::srq srq;
  dat::ep<dat::with_srq<dat::rc>> ep;
};

/// What the jobs work with.
struct place {
  end<dat::dto> lean;
  end<dat::dto | dat::connection> merged;
  shared_end shared;
  dat::evd<dat::dto | dat::datagrams> ud_evd;
  dat::ep<dat::ud> ud;
  dat::ib::address_handle peer;           ///< whom `ud` sends to
  std::optional<dat::ib::local_word> old; ///< what the word was
  std::optional<dat::ib::remote_word> word;
  end<dat::dto | dat::rmr_bind> binding;
  dat::rmr window; ///< of type 1
  const memory* region = nullptr;
  std::array<local, 4> out; ///< segments of 64 bytes
  local in;
  remote there;
  ibv_sge sge[4]; ///< `out` and `there` as verbs has them
  ibv_sge old_sge{};
  std::uint64_t word_address = 0;
  std::uint32_t word_key = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
};

/// One side of a job: does it `operations` times. Instructions are counted inside functions of this type whose names
/// begin with counted_; a job of which only a part is to be counted calls that part as such a function.
using side = void (*)(place& where, long operations);

/// A job by its name: what is compared has the same name on both sides.
struct job {
  const char* name;
  side go;
};

[[nodiscard]] std::span<const job> raw_jobs();
[[nodiscard]] std::span<const job> dat_jobs();
/// Those of the InfiniBand extensions.
[[nodiscard]] std::span<const job> raw_ib_jobs();
[[nodiscard]] std::span<const job> dat_ib_jobs();

/// Fed by all loops with the cookies of what completed; a run of n operations adds 0 + ... + n-1.
extern std::uint64_t consumed;

/// Ends the program: an operation failed.
[[noreturn]] void wrong();

} // namespace overhead
