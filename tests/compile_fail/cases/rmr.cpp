// <dat/rmr.hpp>: windows whose rights exceed those of the memory.
// SPDX-License-Identifier: BSL-1.0
#include <dat/dat.hpp>
#include <dat/rmr.hpp>

using dat::mem_priv;
template <mem_priv P>
using region = dat::lmr<char, P>;
constexpr auto both = mem_priv::local_read | mem_priv::local_write;

//! case: a window for reading over memory that may not be read
//! error: dat: a window with dat::remote_read needs an lmr with dat::local_read
//! tags: [RMR-030]
#ifdef DAT_EXPECT_FAIL
auto read_written(const region<mem_priv::local_write>& m) { return dat::bind{m, dat::remote_read}; }
#else
auto read_read(const region<mem_priv::local_read>& m) { return dat::bind{m, dat::remote_read}; }
#endif

//! case: a window for writing over memory that may not be written
//! error: dat: a window with dat::remote_write or remote_atomic needs an lmr with dat::local_write
//! tags: [RMR-030]
#ifdef DAT_EXPECT_FAIL
auto write_read(const region<mem_priv::local_read>& m) { return dat::bind{m, 0, 1, dat::remote_write}; }
#else
auto write_written(const region<mem_priv::local_write>& m) { return dat::bind{m, 0, 1, dat::remote_write}; }
#endif

//! case: a window that grants flushes
//! error: dat: a window cannot grant flushes: give the peer a segment of the lmr
#ifdef DAT_EXPECT_FAIL
auto flush_window(const region<mem_priv::local_read>& m) { return dat::bind{m, dat::remote_read | dat::flush_global}; }
#else
auto flush_window(const region<mem_priv::local_read>& m) { return dat::bind{m, dat::remote_read}; }
#endif

//! case: a window used without the needed right
//! error: dat: rdma_write needs a remote segment with dat::remote_write
//! tags: [RMR-040]
#ifdef DAT_EXPECT_FAIL
auto closed(dat::rmr& r, dat::ep<dat::rc>& ep, const region<both>& m) {
  return dat::rdma_write{m, r.bind(ep, dat::bind{m, dat::remote_read}).value()};
}
#else
auto open(dat::rmr& r, dat::ep<dat::rc>& ep, const region<both>& m) {
  return dat::rdma_write{m, r.bind(ep, dat::bind{m, dat::remote_write}).value()};
}
#endif

//! case: a solicited bind
//! error: solicited
//! tags: [DTO-075]
#ifdef DAT_EXPECT_FAIL
auto solicited(const region<both>& m) { return dat::bind{m, dat::remote_read}.solicited(); }
#else
auto fenced(const region<both>& m) { return dat::bind{m, dat::remote_read}.suppress_completion().fence(); }
#endif

//! case: a solicited write without immediate data
//! error: solicited
//! tags: [DTO-075][DTO-152]
#ifdef DAT_EXPECT_FAIL
auto solicited_write(const region<both>& m,
                     const dat::remote_segment<char, (dat::remote_read | dat::remote_write).value>& w) {
  return dat::rdma_write{m, w}.solicited();
}
#else
auto fenced_write(const region<both>& m,
                  const dat::remote_segment<char, (dat::remote_read | dat::remote_write).value>& w) {
  return dat::rdma_write{m, w}.suppress_completion().suppress_notification().fence().cookie(1);
}
#endif

//! case: a solicited read
//! error: solicited
//! tags: [DTO-075]
#ifdef DAT_EXPECT_FAIL
auto solicited_read(const region<both>& m,
                    const dat::remote_segment<char, (dat::remote_read | dat::remote_write).value>& w) {
  return dat::rdma_read{m, w}.solicited();
}
#else
auto fenced_read(const region<both>& m,
                 const dat::remote_segment<char, (dat::remote_read | dat::remote_write).value>& w) {
  return dat::rdma_read{m, w}.suppress_completion().suppress_notification().fence().cookie(1);
}
#endif

//! case: immediate data with a send that invalidates
//! error: immediate
//! tags: [DTO-108]
#ifdef DAT_EXPECT_FAIL
auto immediate(const dat::remote_segment<char, both>& w) { return dat::send_with_invalidate{w}.immediate(1); }
#else
auto plain(const dat::remote_segment<char, both>& w) { return dat::send_with_invalidate{w}.cookie(1); }
#endif

//! case: a send that invalidates, from memory that the adapter may not read
//! error: dat: a send needs memory registered with dat::local_read
//! tags: [DTO-084][DTO-102]
#ifdef DAT_EXPECT_FAIL
auto bad(const region<mem_priv::local_write>& m, const dat::remote_segment<char, both>& w) {
  return dat::send_with_invalidate{m, w};
}
#else
auto good(const region<both>& m, const dat::remote_segment<char, both>& w) { return dat::send_with_invalidate{m, w}; }
#endif
