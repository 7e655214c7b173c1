// The measured jobs: each is done with hand-written verbs and with dat, on the same queues.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dat.hpp>
#include <dat/registration_cache.hpp>
#include <dat/rmr.hpp>
#include <dat/srq.hpp>
#include <dat/ud.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace overhead {

/// The number of operations that the jobs with several operations do at a time.
inline constexpr long at_a_time = 16;

inline constexpr auto rights = dat::local_read | dat::local_write | dat::remote_read | dat::remote_write;
using memory = dat::lmr<char, decltype(rights)::value>;
using local = dat::local_segment<char, decltype(rights)::value>;
using remote = dat::remote_segment<char, decltype(rights)::value>;
inline constexpr auto word_rights = dat::local_write | dat::remote_atomic;
using words = dat::lmr<std::uint64_t, decltype(word_rights)::value>;

/// A connected endpoint, with a completions-only or a merged evd.
template <dat::streams S>
struct end {
  dat::evd<S> evd;
  dat::ep<dat::rc> ep;
};

/// One whose receives come from a shared receive queue.
struct shared_end {
  dat::evd<dat::stream::dto | dat::stream::software> evd; // receives of a shared queue need a merged evd
  dat::srq srq;
  dat::ep<dat::with_srq<dat::rc>> ep;
};

/// The objects that the jobs use.
struct place {
  end<dat::stream::dto> completions_only;
  end<dat::stream::dto | dat::stream::connection> merged;
  shared_end shared;
  dat::evd<dat::stream::dto | dat::stream::datagrams> ud_evd;
  dat::ep<dat::ud> ud;
  dat::ib::address_handle peer;           ///< the peer of `ud`
  std::optional<dat::ib::local_word> old; ///< the old value of the word
  std::optional<dat::ib::remote_word> word;
  end<dat::stream::dto | dat::stream::rmr_bind> binding;
  dat::rmr window; ///< of type 1
  const memory* region = nullptr;
  dat::registration_cache<dat::mem_priv::local_read> cache; ///< with 64 regions
  std::span<std::byte> cached;                              ///< the memory of one of them
  std::array<local, 4> out;                                 ///< segments of 64 bytes
  local in;
  remote there;
  ibv_sge sge[4];                ///< `out` and `there` as verbs has them
  ibv_qp_ex* extended = nullptr; ///< of the endpoint of `completions_only`
  ibv_sge old_sge{};
  std::uint64_t word_address = 0;
  std::uint32_t word_key = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
};

/// One side of a job: it does `operations` operations. Instructions are counted inside functions of this type whose
/// names begin with counted_; a job that is counted in part calls that part as such a function.
using side = void (*)(place& where, long operations);

/// A job by its name: jobs that are compared have the same name on both sides.
struct job {
  const char* name;
  side go;
};

[[nodiscard]] std::span<const job> raw_jobs();
[[nodiscard]] std::span<const job> dat_jobs();
/// The jobs of the InfiniBand extensions.
[[nodiscard]] std::span<const job> raw_ib_jobs();
[[nodiscard]] std::span<const job> dat_ib_jobs();
/// Those that take one event after the other; their raw sides are among raw_jobs().
[[nodiscard]] std::span<const job> dat_wait_jobs();
[[nodiscard]] std::span<const job> dat_count_jobs();
[[nodiscard]] std::span<const job> dat_cache_jobs();
/// Hand-written verbs on both sides: posts by ibv_post_send, and by the functions of an extended queue pair.
[[nodiscard]] std::span<const job> post_send_jobs();
[[nodiscard]] std::span<const job> extended_jobs();

/// Every loop adds the cookies of its completions; a run of n operations adds 0 + ... + n-1.
extern std::uint64_t consumed;

/// Ends the program because an operation failed.
[[noreturn]] void wrong();

} // namespace overhead
