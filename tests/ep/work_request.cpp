// The members of a verbs work request that each operation writes, and the values that are read back.
// SPDX-License-Identifier: BSL-1.0
#include <dat/detail/request/work_request.hpp>

#include <support/catch.hpp>

#include <cstring>

using dat::detail::request_header;

namespace {

request_header of(ibv_wr_opcode opcode) {
  request_header r;
  r.opcode = opcode;
  r.flags = IBV_SEND_FENCE;
  r.imm = 0x11223344;
  r.remote = {0x5566'7788'99aa, 0, 0xbbcc};
  r.compare_add = 17;
  r.swap = 18;
  return r;
}

/// The members of a request that survive when it is written to a work request and read back. All other members are 0.
request_header restored(ibv_wr_opcode opcode) {
  ibv_send_wr wr;
  std::memset(&wr, 0, sizeof wr);
  of(opcode).fill(wr);
  CHECK(wr.opcode == opcode);
  CHECK(wr.send_flags == IBV_SEND_FENCE);
  request_header r{};
  r.restore(wr);
  CHECK(r.opcode == opcode);
  CHECK(r.flags == IBV_SEND_FENCE);
  return r;
}

} // namespace

TEST_CASE("a request that is read back has the immediate data or the key of its operation") {
  for (const auto opcode : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_INV}) {
    INFO("opcode " << opcode);
    CHECK(restored(opcode).imm == 0x11223344);
  }
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    INFO("opcode " << opcode);
    CHECK(restored(opcode).imm == 0);
  }
}

TEST_CASE("a request that is read back has the place of the peer if its operation has one") {
  for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
                            IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    INFO("opcode " << opcode);
    CHECK(restored(opcode).remote.address == 0x5566'7788'99aa);
    CHECK(restored(opcode).remote.key == 0xbbcc);
  }
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV}) {
    INFO("opcode " << opcode);
    CHECK(restored(opcode).remote.address == 0);
    CHECK(restored(opcode).remote.key == 0);
  }
}

TEST_CASE("a request that is read back has the numbers of its atomic operation") {
  CHECK(restored(IBV_WR_ATOMIC_FETCH_AND_ADD).compare_add == 17);
  CHECK(restored(IBV_WR_ATOMIC_FETCH_AND_ADD).swap == 0);
  CHECK(restored(IBV_WR_ATOMIC_CMP_AND_SWP).compare_add == 17);
  CHECK(restored(IBV_WR_ATOMIC_CMP_AND_SWP).swap == 18);
  CHECK(restored(IBV_WR_RDMA_READ).compare_add == 0);
}
