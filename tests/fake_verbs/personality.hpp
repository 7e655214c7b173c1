// Personalities of the fake: the behaviour of a kind of device, as one set of switches. README.md has their sources.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <functional>
#include <vector>

namespace fake {

enum class personality {
  kind,    ///< the default: the convenient behaviour of Soft-RoCE, without any delay
  rxe,     ///< the actual behaviour of Soft-RoCE of Linux 6.1
  mlx5,    ///< ConnectX adapters with RoCE
  ib,      ///< the same adapters on an InfiniBand fabric
  iwarp,   ///< siw: iWARP over TCP
  plain,   ///< a RoCE device whose driver has the least that verbs allows
  removed, ///< like kind; the removal of a device also kills its descriptors
  slow,    ///< like kind; each call of setup and teardown takes long
};

/// All of them, the default first.
const std::vector<personality>& personalities();
/// The name as in FAKE_VERBS_PERSONALITY: "mlx5".
const char* name(personality p);
/// The personality that reset() applies: that of the innermost scope, then that of FAKE_VERBS_PERSONALITY, then `kind`.
/// An unknown name in the environment ends the program with the list of names.
personality current();

/// The switches that only personalities have; the others belong to a world. README.md has their sources.
struct manners {
  bool late_flush = false;       ///< flush completions arrive some time after the move to ERR, see finish()
  bool fatal_overrun = false;    ///< a completion queue that overruns is dead, and moves its queue pairs to ERR
  bool last_wqe_event = false;   ///< QP_LAST_WQE_REACHED follows the move to ERR of each queue pair with an srq
  bool vendor_errors = false;    ///< failed completions have a vendor error, and garbage in undefined members
  bool lengths_of_reads = false; ///< byte_len is valid for receives, reads and atomics only, garbage for other sends
  bool srq_resize = true;        ///< false: ibv_modify_srq refuses another size
  bool srq_query = true;         ///< false: the driver has no ibv_query_srq
  bool cq_resize = true;         ///< false: the driver has no ibv_resize_cq
  bool negative_errnos = false;  ///< posting calls and ibv_resize_cq return -EINVAL where others return EINVAL
  bool reuse_qp_numbers = false; ///< a new queue pair gets the lowest number that is free
  bool removal_kills = false;    ///< remove_device() includes kill_descriptors()
  unsigned slow_call_us = 0;     ///< how long each call of setup or teardown takes, at least
  unsigned slow_query_us = 0;    ///< how long ibv_query_qp and ibv_query_srq take, at least
};

/// While the object exists, reset() applies this personality: for a test that expects a certain behaviour. `change`
/// adds to it.
class with {
public:
  explicit with(personality p, std::function<void(manners&)> change = {});
  ~with();
  with(const with&) = delete;
  with& operator=(const with&) = delete;

private:
  int before_;
  std::function<void(manners&)> outer_;
};

/// The devices finish their delayed work: afterwards all flush completions are queued (late_flush). Without this call,
/// they arrive after a few more calls of the program, or after 100 microseconds.
void finish();
/// From now on delayed completions arrive only in finish().
void hold_late();

} // namespace fake
