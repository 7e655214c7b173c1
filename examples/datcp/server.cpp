// The server: one thread accepts, and one thread serves each client.
// SPDX-License-Identifier: BSL-1.0
#include "server.hpp"

#include "channel.hpp"
#include "stop.hpp"
#include "text.hpp"
#include "transfer.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <list>
#include <thread>
#include <utility>

namespace datcp {

using namespace std::chrono_literals;

namespace {

/// Writes one line by one call, so that lines of several threads do not mix.
void log(const std::string& who, const std::string& what) {
  fmt::print(stderr, "datcp: {}: {}\n", who, printable(what));
}

/// Counts the operations of a client, and logs failures.
class account final : public observer {
public:
  explicit account(std::string who) : who_(std::move(who)) {}
  void moved(const std::string&, std::uint64_t bytes, bool resumed) override { bytes_ += resumed ? 0 : bytes; }
  void copied(const entry& what, const checksum&) override { files_ += what.what == entry::kind::file ? 1 : 0; }
  void skipped(const entry&) override {}
  void problem(const std::string& path, const std::string& why) override {
    ++problems_;
    log(who_, fmt::format("{}: {}", path, why));
  }
  [[nodiscard]] std::string text() const {
    auto t = fmt::format("{}, {}", counted(files_, "file", "files"), as_size(static_cast<double>(bytes_)));
    return problems_ == 0 ? t : t + ", " + counted(problems_, "problem", "problems");
  }

private:
  std::string who_;
  std::uint64_t files_ = 0, bytes_ = 0, problems_ = 0;
};

/// The requests of one client, until it disconnects.
class session {
public:
  session(dat::ia& ia, dat::cr request, const tree& root, const serve_job& job)
      : who_(request.remote_address().to_string()), thread_([this, &ia, &root, &job, r = std::move(request)]() mutable {
          run(ia, std::move(r), root, job);
          over_ = true;
        }) {}
  [[nodiscard]] bool over() const noexcept { return over_; }

private:
  /// A failure of a client ends its own session only.
  void run(dat::ia& ia, dat::cr request, const tree& root, const serve_job& job) noexcept {
    try {
      serve(ia, std::move(request), root, job);
    } catch (const interrupted&) {
      log(who_, "ended, since the server is ending");
    } catch (const std::exception& e) {
      log(who_, e.what());
    }
  }

  void serve(dat::ia& ia, dat::cr request, const tree& root, const serve_job& job) {
    // The session has its own endpoint and event dispatcher, and shares only the adapter with other clients.
    channel client(ia, job.ring, [] { return stop_requested.load(); });
    client.accept(std::move(request));
    while (auto m = client.receive_or_end()) answer(client, channel::expect<datcp::request>(std::move(*m)), root, job);
  }

  void answer(channel& client, const request& asked, const tree& root, const serve_job& job) {
    account watcher(who_);
    const bool put = asked.what == request::kind::put;
    if (!put) {
      client.send(reply{.ok = true});
      send_tree(client, root, asked.path, asked.recursive, watcher);
    } else {
      std::optional<destination> here;
      try {
        if (job.read_only) throw file_error("the server does not take files");
        here = destination::choose(root, asked.path, asked.into_directory);
      } catch (const file_error& e) {
        log(who_, fmt::format("put {}: {}", asked.path, e.what()));
        client.send(reply{.ok = false, .text = e.what()});
        return;
      }
      client.send(reply{.ok = true});
      receive_tree(client, *here, asked.resume, watcher);
    }
    log(who_, fmt::format("{} {}: {}", put ? "put" : "get", asked.path, watcher.text()));
  }

  std::string who_;
  std::atomic<bool> over_ = false;
  std::jthread thread_; // declared last, because it uses the other members
};

} // namespace

void run_server(const serve_job& job) {
  descriptor directory;
  try {
    directory = tree::of_user().open(job.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  } catch (const file_error& e) {
    throw file_error(fmt::format("{}: {}", job.directory, e.what()));
  }
  const auto root = tree::confined_to(std::move(directory));
  auto ia = (job.address ? dat::ia::open(*job.address) : dat::ia::open()).value();
  auto requests = ia.create_evd<dat::stream::connection_requests>(64).value();
  const auto psp = ia.create_psp(job.port, requests).value();
  fmt::print(stderr, "datcp: serving {} at {}\n", printable(job.directory),
             ia.address().with_port(psp.port()).to_string());

  std::list<session> sessions;
  while (!stop_requested) {
    auto event = requests.wait(250ms); // with a limit, because a signal just before the wait does not end it
    sessions.remove_if([](const session& s) { return s.over(); });
    if (!event) {
      const auto type = event.assume_error().type();
      if (type != dat::return_type::timeout_expired && type != dat::return_type::interrupted_call) event.value();
      continue;
    }
    auto request = std::get<dat::connection_request>(std::move(event).assume_value());
    if (sessions.size() >= job.clients) {
      log(request.remote_address().to_string(), "refused: too many clients");
      (void)request.reject(encode_prefix(refusal{.reason = "too many clients, try later"}));
      continue;
    }
    sessions.emplace_back(ia, std::move(request), root, job);
  }
  fmt::print(stderr, "datcp: ending\n");
} // the sessions end by stop_requested, too, and their threads are joined here

} // namespace datcp
