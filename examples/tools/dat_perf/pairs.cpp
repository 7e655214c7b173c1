// Tests all pairs of a list of hosts.
// SPDX-License-Identifier: BSL-1.0
#include "pairs.hpp"
#include "launch.hpp"
#include "plot.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <arpa/inet.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <list>
#include <sstream>
#include <stdexcept>

namespace perf {

namespace {

constexpr auto start_limit = std::chrono::seconds(60); // for a launcher, until a program runs on its host

bool is_address(const std::string& text) {
  std::array<unsigned char, 16> ignored{};
  return inet_pton(AF_INET, text.c_str(), ignored.data()) == 1 ||
         inet_pton(AF_INET6, text.c_str(), ignored.data()) == 1;
}

std::vector<std::string> with_common(const options& o, const host_entry& here, std::vector<std::string> arguments) {
  if (!here.address.empty()) arguments.insert(arguments.end(), {"--address", here.address});
  arguments.insert(arguments.end(),
                   {"--port", fmt::format("{}", o.port), "--limit", fmt::format("{:.0f}us", o.limit * 1e6)});
  return arguments;
}

/// The figure of a client's JSON.
cell read_result(const options& o, const child& client) {
  try {
    const auto told = nlohmann::json::parse(client.output());
    if (told.contains("problem")) return {std::nullopt, told.at("problem").get<std::string>()};
    const auto& result = told.at("results").at(0);
    if (o.figure == "rate") return {result.at("per_second").get<double>(), {}};
    if (o.figure == "bandwidth") return {result.at("bits_per_second").get<double>(), {}};
    if (o.figure == "lost") return {result.at("lost").at("per_cent").get<double>(), {}};
    return {result.at("microseconds").at(o.figure).get<double>(), {}};
  } catch (const nlohmann::json::exception&) { // the test ended before this step
    return {std::nullopt, client.problem()};
  }
}

/// Rounds in which each host is in one pair at most: the first host stays, the others go round.
std::vector<std::vector<matrix::pair>> rounds_of(std::size_t hosts) {
  const std::size_t places = hosts + hosts % 2;
  std::vector<std::vector<matrix::pair>> rounds;
  for (std::size_t round = 0; round + 1 < places; ++round) {
    const auto at = [&](std::size_t place) { return place == 0 ? 0 : 1 + (place - 1 + round) % (places - 1); };
    std::vector<matrix::pair> there, back;
    for (std::size_t i = 0; i < places / 2; ++i) {
      const std::size_t a = at(i), b = at(places - 1 - i);
      if (a >= hosts || b >= hosts) continue; // with an odd number, one host pauses
      there.push_back({a, b});
      back.push_back({b, a});
    }
    rounds.push_back(there);
    rounds.push_back(back);
  }
  return rounds;
}

class coordinator {
public:
  explicit coordinator(const options& o) : o_(o), terminal_(isatty(STDERR_FILENO) == 1) {
    all_.hosts = read_hosts(o.hosts);
    all_.cells.assign(all_.hosts.size(), std::vector<cell>(all_.hosts.size()));
    problems_.resize(all_.hosts.size());
  }

  matrix run() {
    start_servers();
    for (const auto& round : rounds_of(all_.hosts.size())) run_round(round);
    for (auto& s : servers_)
      if (s) s->end_input();
    for (std::size_t h = 0; h < servers_.size(); ++h)
      if (servers_[h]) (void)servers_[h]->wait(clock::now() + std::chrono::seconds(10)); // else ended by the destructor
    if (terminal_) fmt::print(stderr, "\r\x1b[K");
    return std::move(all_);
  }

private:
  void start_servers() {
    const auto until = clock::now() + start_limit;
    for (std::size_t h = 0; h < all_.hosts.size(); ++h)
      servers_.push_back(start(h, with_common(o_, all_.hosts[h], {"--end-with-input"}), true, problems_[h]));
    for (std::size_t h = 0; h < all_.hosts.size(); ++h) {
      if (!servers_[h]) continue;
      const auto line = servers_[h]->first_line(until);
      if (line && line->find("serving on") != std::string::npos) continue;
      // No line: the launcher is about to end, or `until` has passed.
      problems_[h] = servers_[h]->wait(line ? clock::now() : until) ? servers_[h]->problem()
                     : line                                         ? "it has answered \"" + *line + "\""
                                                                    : "it does not start";
      servers_[h].reset();
    }
  }

  /// Null when the process could not be started: `problem` then returns the reason.
  std::unique_ptr<child> start(std::size_t h, const std::vector<std::string>& arguments, bool serves,
                               std::string& problem) {
    try {
      return std::make_unique<child>(command_on(o_, all_.hosts[h].name, arguments), serves);
    } catch (const std::exception& e) {
      problem = e.what();
      return nullptr;
    }
  }

  struct job {
    matrix::pair of;
    std::unique_ptr<child> client;
    clock::time_point until;
  };

  void run_round(const std::vector<matrix::pair>& round) {
    std::list<job> running;
    for (const matrix::pair& p : round) {
      while (running.size() >= o_.parallel) finish_one(running);
      cell& into = all_.cells[p.from][p.to];
      if (!problems_[p.to].empty()) {
        into.problem = "no server: " + problems_[p.to];
        continue;
      }
      std::vector<std::string> arguments{all_.hosts[p.to].target()};
      const auto run = arguments_of(o_.run);
      arguments.insert(arguments.end(), run.begin(), run.end());
      arguments.insert(arguments.end(), {"--json", "-"});
      auto client = start(p.from, with_common(o_, all_.hosts[p.from], arguments), false, into.problem);
      if (!client) continue;
      // Each step of the client has a time limit. A test by iterations may run as long as it needs.
      const auto longest = o_.run.iterations != 0
                               ? std::chrono::hours(24 * 365)
                               : start_limit + std::chrono::duration_cast<clock::duration>(
                                                   std::chrono::duration<double>(o_.run.seconds + 10 * o_.limit));
      running.push_back({p, std::move(client), clock::now() + longest});
      show(p);
    }
    while (!running.empty()) finish_one(running);
  }

  /// Waits until a client has ended, or its time is over.
  void finish_one(std::list<job>& running) {
    for (;;) {
      std::vector<pollfd> set;
      auto first = clock::time_point::max();
      for (const job& j : running) {
        set.push_back({j.client->descriptor(), POLLIN, 0});
        first = std::min(first, j.until);
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - clock::now()).count();
      (void)poll(set.data(), set.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000))); // or a signal
      const auto now = clock::now();
      std::size_t i = 0;
      for (auto j = running.begin(); j != running.end(); ++j, ++i) {
        cell& into = all_.cells[j->of.from][j->of.to];
        if (set[i].revents != 0 && j->client->wait(now))
          into = read_result(o_, *j->client);
        else if (now >= j->until)
          into.problem = "the client has not ended in time";
        else
          continue;
        running.erase(j);
        ++done_;
        return;
      }
    }
  }

  void show(const matrix::pair& p) const {
    if (!terminal_ && !o_.progress) return;
    const std::size_t n = all_.hosts.size();
    fmt::print(stderr, "{}pair {} of {}: {} to {}{}", terminal_ ? "\r\x1b[K" : "", done_ + 1, n * (n - 1),
               all_.hosts[p.from].name, all_.hosts[p.to].name, terminal_ ? "" : "\n");
    std::fflush(stderr);
  }

  const options& o_;
  bool terminal_;
  matrix all_;
  std::vector<std::unique_ptr<child>> servers_;
  std::vector<std::string> problems_; // of the servers
  std::size_t done_ = 0;
};

} // namespace

std::vector<host_entry> read_hosts(const std::string& file) {
  std::ifstream lines(file);
  if (!lines) throw std::runtime_error(fmt::format("--all: cannot read {}", file));
  std::vector<host_entry> hosts;
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    host_entry h;
    std::string more;
    if (!(words >> h.name)) continue;
    const auto wrong = [&](const std::string& what) {
      throw std::runtime_error(fmt::format("--all: {}, line {}: {}; a line is NAME [ADDRESS]", file, number, what));
    };
    if (words >> h.address && !is_address(h.address)) wrong(fmt::format("\"{}\" is no IP address", h.address));
    if (words >> more) wrong(fmt::format("\"{}\" is too much", more));
    if (h.name.starts_with('-')) wrong(fmt::format("\"{}\" is no name of a host", h.name));
    for (const host_entry& other : hosts)
      if (other.name == h.name) wrong(fmt::format("{} is there twice", h.name));
    hosts.push_back(h);
  }
  if (hosts.size() < 2)
    throw std::runtime_error(fmt::format("--all: {} has {} hosts; a test needs two", file, hosts.size()));
  return hosts;
}

int run_pairs(const options& o) {
  std::signal(SIGPIPE, SIG_IGN); // of a server that has ended
  if (!o.plot.empty()) need_gnuplot();
  need_launcher(o);
  matrix all = coordinator(o).run();
  judge(o, all);
  write(o, all);
  for (const std::string& text : all.missed) fmt::print(stderr, "dat-perf: {}\n", text);
  return !all.failed.empty() ? failed : !all.slow.empty() || !all.missed.empty() ? threshold_missed : 0;
}

} // namespace perf
