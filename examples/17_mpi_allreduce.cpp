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

/// What each process publishes: its two endpoints, and the memory into which its left neighbour writes.
struct card {
  dat::ib::descriptor::wire left;
  dat::ib::descriptor::wire right;
  remote_numbers::wire sums;
  remote_numbers::wire parts;
};

/// The neighbours of a process in the ring.
struct ring {
  dat::evd<dat::stream::dto | dat::stream::connection> evd{};
  dat::ep<dat::rc> left{};
  dat::ep<dat::rc> right{};

  /// Writes to the right neighbour, and waits until the left one has written here.
  template <class From>
  dat::expected<void> step(const From& from, const remote_numbers& to) {
    DAT_TRYV(right.post(dat::rdma_write{from, to}.immediate(0)));
    DAT_TRYV(evd.wait_for<dat::ib::rdma_write_immediate_done>(right, 10s));
    DAT_TRYV(evd.wait_for<dat::ib::recv_write_immediate_done>(left, 10s));
    return dat::success();
  }
};

/// Replaces `sums` by the sums over all processes.
dat::expected<void> all_reduce(std::vector<std::uint32_t>& sums, std::size_t rank, std::size_t size) {
  const std::size_t n = sums.size() / size; // elements of one of `size` chunks
  DAT_TRY(auto ia, dat::ia::open());
  DAT_TRY(auto pz, ia.create_pz());
  ring all;
  DAT_TRY(all.evd, ia.create_evd<dat::stream::dto | dat::stream::connection>(64));
  const auto queues = static_cast<std::uint32_t>(2 * size); // a receive for each step
  DAT_TRY(all.left, pz.create_ep<dat::rc>(all.evd, {.max_recv_dtos = queues}));
  DAT_TRY(all.right, pz.create_ep<dat::rc>(all.evd));
  for (std::size_t i = 0; i < 2 * (size - 1); ++i) DAT_TRYV(all.left.post(dat::recv{}));
  std::vector<std::uint32_t> parts(sums.size()); // the left neighbour writes here while chunks are still added up
  DAT_TRY(numbers own, pz.register_memory(sums, dat::local_read | dat::remote_write));
  DAT_TRY(numbers in, pz.register_memory(parts, dat::local_read | dat::remote_write));

  DAT_TRY(const auto to_left, all.left.export_descriptor());
  DAT_TRY(const auto to_right, all.right.export_descriptor());
  const card mine{to_left.to_wire(), to_right.to_wire(), own.remote().to_wire(), in.remote().to_wire()};
  std::vector<card> cards(size);
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, cards.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
  const card& of_left = cards[(rank + size - 1) % size];
  const card& of_right = cards[(rank + 1) % size];
  DAT_TRY(const auto left, dat::ib::descriptor::from_wire(of_left.right));
  DAT_TRY(const auto right, dat::ib::descriptor::from_wire(of_right.left));
  DAT_TRY(const auto sums_there, remote_numbers::from_wire(of_right.sums));
  DAT_TRY(const auto parts_there, remote_numbers::from_wire(of_right.parts));
  DAT_TRYV(all.left.connect(left));
  DAT_TRYV(all.right.connect(right));
  DAT_TRYV(all.evd.wait_for<dat::established>(all.left, 10s));
  DAT_TRYV(all.evd.wait_for<dat::established>(all.right, 10s));
  MPI_Barrier(MPI_COMM_WORLD); // a write to an endpoint that is not connected yet would be lost

  // Each chunk goes round the ring and grows, until every process has the sum of one chunk.
  for (std::size_t s = 0; s + 1 < size; ++s) {
    DAT_TRY(const auto from, own.slice((rank + size - s) % size * n, n));
    DAT_TRY(const auto to, parts_there.slice(s * n, n));
    DAT_TRYV(all.step(from, to));
    const std::size_t chunk = (rank + size - s - 1) % size * n;
    for (std::size_t i = 0; i < n; ++i) sums[chunk + i] += parts[s * n + i];
  }
  // The sums go round once more.
  for (std::size_t s = 0; s + 1 < size; ++s) {
    const std::size_t chunk = (rank + 1 + size - s) % size * n;
    DAT_TRY(const auto from, own.slice(chunk, n));
    DAT_TRY(const auto to, sums_there.slice(chunk, n));
    DAT_TRYV(all.step(from, to));
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
