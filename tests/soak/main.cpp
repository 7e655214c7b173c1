// soak: one process of the soak. tests/soak/soak.py starts two of them, disturbs them, and judges their results.
// SPDX-License-Identifier: BSL-1.0
#include "process.hpp"

#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>
#include <exception>

namespace {

/// A signal that only interrupts waits.
void interrupt_waits() {
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  sigaction(SIGUSR1, &nothing, nullptr); // without SA_RESTART: every wait returns
}

} // namespace

int main(int argc, char** argv) try {
  CLI::App app("One process of the soak: serves and asks for all services. tests/soak/soak.py gives it its orders.");
  soak::settings given;
  app.add_option("--adapter", given.adapter, "The adapter to open")->required();
  app.add_option("--peer", given.peer, "The address of the other process's adapter")->required();
  app.add_option("--name", given.name, "Of this process, in reports")->required();
  app.add_option("--board", given.board, "The file in which all processes count")->required();
  app.add_option("--seed", given.seed, "Of the sizes, plans and ends of connections")->capture_default_str();
  app.add_option("--box", given.box, "The mailbox of this process's client, 0 or 1")->check(CLI::Range(0, 1));
  app.add_option("--services", given.services, "Only these services")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  interrupt_waits();
  return soak::process(given).run();
} catch (const std::exception& e) {
  std::fprintf(stderr, "soak: %s\n", e.what());
  return 2;
}
