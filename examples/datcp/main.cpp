// datcp: copies files between hosts over RDMA. The command line.
// SPDX-License-Identifier: BSL-1.0
#include "channel.hpp"
#include "client.hpp"
#include "files.hpp"
#include "server.hpp"
#include "stop.hpp"
#include "text.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace {

constexpr int failed = 1, interrupted_by_user = 130;

void add_common(CLI::App& app, datcp::geometry& ring, std::uint16_t& port) {
  app.add_option("--port", port, "Port of the server")->capture_default_str()->check(CLI::Range(1, 65535));
  // 4 MiB in total: with the ring of one connection an ordinary user stays below the usual limit of locked memory, 8
  // MiB.
  app.add_option("--block-size", ring.block_size, "Bytes moved by one RDMA write (64KiB, 1MiB, ...)")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str()
      ->check(CLI::Range(datcp::geometry::min_block_size, datcp::geometry::max_block_size));
  app.add_option("--blocks", ring.blocks, "Writes in flight")
      ->capture_default_str()
      ->check(CLI::Range(1, int{datcp::geometry::max_blocks}));
}

[[noreturn]] void wrong_use(const std::string& why) { throw CLI::ValidationError(why); }

int copy(int argc, char** argv) {
  CLI::App app("Copies files and directories over RDMA.\n"
               "  datcp [options] SERVER:PATH... LOCAL    from the server to here\n"
               "  datcp [options] LOCAL... SERVER:PATH    from here to the server\n"
               "  datcp serve DIR [options]               the server (datcp serve --help)\n"
               "SERVER is a name or address ([...] around an IPv6 address); PATH is relative to the server's DIR.",
               "datcp");
  std::vector<std::string> names;
  datcp::copy_job job;
  std::uint16_t port = job.port.port();
  std::uint64_t limit = 0;
  bool json = false, quiet = false;
  app.add_option("files", names, "The sources, and last the target")->required()->expected(2, -1);
  app.add_flag("-r,--recursive", job.recursive, "Copy directories with all that is in them");
  app.add_flag("--resume", job.resume, "Go on with what an earlier copy has left; leave complete files alone");
  app.add_option("--limit", limit, "Bytes per second at most (500KB, 20MiB, ...)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 50));
  app.add_flag("--json", json, "Summary as JSON on standard output");
  app.add_flag("-q,--quiet", quiet, "No progress, no summary");
  add_common(app, job.ring, port);
  try {
    app.parse(argc, argv);
    job.port = dat::conn_qual::make(port).value();
    for (const auto& name : names) job.sources.push_back(datcp::location::parse(name));
    job.target = std::move(job.sources.back());
    job.sources.pop_back();
    for (const auto& from : job.sources) {
      if (from.server.has_value() == job.target.server.has_value())
        wrong_use(from.server ? "one side must be local" : "one side must be SERVER:PATH");
      if (from.server != job.sources.front().server) wrong_use("all sources must be on one server");
    }
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }

  datcp::report report(!json && !quiet && ::isatty(STDERR_FILENO) == 1, limit);
  int code = 0;
  try {
    datcp::run_copy(job, report);
  } catch (const datcp::interrupted&) {
    report.fatal("interrupted; --resume continues the copy");
    code = interrupted_by_user;
  } catch (const std::exception& e) {
    report.fatal(e.what());
  }
  report.clear_bar();
  if (json)
    fmt::print("{}\n", report.json());
  else if (const auto text = report.summary(); !quiet && !text.empty())
    fmt::print("{}\n", datcp::printable(text));
  if (code == 0 && !report.ok()) code = failed;
  return code;
}

int serve(int argc, char** argv) {
  CLI::App app("Serves the files of a directory to datcp clients, until SIGINT or SIGTERM.", "datcp serve");
  datcp::serve_job job;
  std::uint16_t port = job.port.port();
  std::string address;
  app.add_option("DIR", job.directory, "Clients see nothing outside of it")->required();
  app.add_option("--address", address, "Serve on the adapter that has this address, not on the host's first");
  app.add_option("--clients", job.clients, "How many are served at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  app.add_flag("--read-only", job.read_only, "Take no files");
  add_common(app, job.ring, port);
  try {
    app.parse(argc, argv);
    job.port = dat::conn_qual::make(port).value();
    if (!address.empty()) {
      const auto parsed = dat::ia_address::parse(address);
      if (!parsed) wrong_use("--address: " + parsed.error().message());
      job.address = parsed.value();
    }
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    datcp::run_server(job);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "datcp: {}\n", e.what());
    return failed;
  }
}

} // namespace

int main(int argc, char** argv) {
  datcp::listen_to_signals();
  return argc > 1 && std::string_view(argv[1]) == "serve" ? serve(argc - 1, argv + 1) : copy(argc, argv);
}
