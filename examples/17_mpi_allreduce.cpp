// Under a launcher: N processes add up their vectors in a ring, by RDMA writes with immediate data.
// `mpirun -n 4 17_mpi_allreduce`, or `srun -n 4 17_mpi_allreduce`. MPI starts the processes and exchanges descriptors.
// SPDX-License-Identifier: BSL-1.0
#define MPICH_SKIP_MPICXX
#define OMPI_SKIP_MPICXX
#include <array>
#include <cstdint>
#include <dat/dat.hpp>
#include <dat/descriptor.hpp>
#include <dat/try.hpp>
#include <iostream>
#include <mpi.h>
#include <vector>
using namespace std::chrono_literals;

namespace {

using numbers = dat::lmr<std::uint32_t, (dat::local_read | dat::remote_write)>;
using remote_numbers = dat::remote_segment<std::uint32_t, dat::remote_write>;

/// The data that each process publishes: its two endpoints, and the memory into which its left neighbour writes.
struct card {
  dat::ib::descriptor::wire left;
  dat::ib::descriptor::wire right;
  remote_numbers::wire sums;
  remote_numbers::wire parts;
};

/// Replaces `sums` by the sums over all processes.
dat::expected<void> all_reduce(std::vector<std::uint32_t>& sums, std::size_t rank, std::size_t size) {
  const std::size_t n = sums.size() / size; // elements of one of `size` chunks
  const std::size_t steps = 2 * (size - 1);
  DAT_TRY(auto ia, dat::ia::open());
  DAT_TRY(auto pz, ia.create_pz());
  DAT_TRY(auto evd, ia.create_evd<dat::stream::dto | dat::stream::connection>(64));
  DAT_TRY(auto left, pz.create_ep<dat::rc>(evd, {.max_recv_dtos = static_cast<std::uint32_t>(steps + 1)}));
  DAT_TRY(auto right, pz.create_ep<dat::rc>(evd));
  for (std::size_t s = 0; s < steps; ++s)
    DAT_TRYV(left.post(dat::recv{}));            // one receive for the immediate data of each step
  std::vector<std::uint32_t> parts(sums.size()); // the left neighbour writes here while chunks are still added up
  DAT_TRY(numbers own, pz.register_memory(sums, dat::local_read | dat::remote_write));
  DAT_TRY(numbers in, pz.register_memory(parts, dat::local_read | dat::remote_write));

  DAT_TRY(const auto to_left, left.export_descriptor());
  DAT_TRY(const auto to_right, right.export_descriptor());
  const card mine{to_left.to_wire(), to_right.to_wire(), own.remote().to_wire(), in.remote().to_wire()};
  std::vector<card> cards(size);
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, cards.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
  const card& of_right = cards[(rank + 1) % size];
  DAT_TRY(const auto left_end, dat::ib::descriptor::from_wire(cards[(rank + size - 1) % size].right));
  DAT_TRY(const auto right_end, dat::ib::descriptor::from_wire(of_right.left));
  DAT_TRY(const auto sums_there, remote_numbers::from_wire(of_right.sums));
  DAT_TRY(const auto parts_there, remote_numbers::from_wire(of_right.parts));
  DAT_TRYV(left.connect(left_end));
  DAT_TRYV(right.connect(right_end));
  DAT_TRYV(evd.wait_for<dat::established>(left, 10s));
  DAT_TRYV(evd.wait_for<dat::established>(right, 10s));
  MPI_Barrier(MPI_COMM_WORLD); // a write to an endpoint that is not connected yet would be lost

  // Each chunk goes round the ring and grows, until every process has the sum of one chunk. Then the sums go round.
  for (std::size_t s = 0; s < steps; ++s) {
    const bool adds = s < steps / 2;
    const auto chunk = [&](std::size_t step) { return (rank + 2 * size - step) % size * n; };
    DAT_TRY(const auto from, own.slice(chunk(s), n));
    DAT_TRY(const auto to, adds ? parts_there.slice(s * n, n) : sums_there.slice(chunk(s), n));
    DAT_TRYV(right.post(dat::rdma_write{from, to}.immediate(0)));
    DAT_TRYV(evd.wait_for<dat::ib::rdma_write_immediate_done>(right, 10s));
    DAT_TRYV(evd.wait_for<dat::ib::recv_write_immediate_done>(left, 10s)); // the left neighbour has written here
    for (std::size_t i = 0; adds && i < n; ++i) sums[chunk(s + 1) + i] += parts[s * n + i];
  }
  MPI_Barrier(MPI_COMM_WORLD); // a peer may still need this endpoint
  return dat::success();
}

} // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto count = static_cast<std::uint32_t>(size);
  std::vector<std::uint32_t> sums(std::size_t{1024} * count);
  for (std::size_t i = 0; i < sums.size(); ++i)
    sums[i] = static_cast<std::uint32_t>(i) + static_cast<std::uint32_t>(rank);
  const auto done = all_reduce(sums, static_cast<std::size_t>(rank), count);
  if (!done) {
    std::cerr << done.error().message() << '\n';
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  int wrong = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) wrong += sums[i] != i * count + count * (count - 1) / 2;
  int all_wrong = 0;
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) std::cout << size << " processes, " << sums.size() << " sums, " << all_wrong << " of all are wrong\n";
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
