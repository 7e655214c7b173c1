// The client: connects, sends the request, and acts as sender or receiver.
// SPDX-License-Identifier: BSL-1.0
#include "client.hpp"

#include "channel.hpp"
#include "stop.hpp"
#include "transfer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace datcp {

location location::parse(std::string_view text) {
  if (text.starts_with('[')) {
    if (const auto end = text.find("]:"); end != std::string_view::npos && end > 1)
      return {std::string(text.substr(1, end - 1)), std::string(text.substr(end + 2))};
  }
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0 || text.find('/') < colon) return {{}, std::string(text)};
  return {std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

namespace {

void ask(channel& server, const std::string& name, const request& what) {
  server.send(what);
  if (const auto r = server.receive<reply>(); !r.ok)
    throw file_error(fmt::format("{}:{}: {}", name, what.path, r.text));
}

void get(channel& server, const copy_job& job, const destination& here, report& to) {
  for (const auto& from : job.sources) {
    to.source(fmt::format("{}:{}", *from.server, from.path));
    ask(server, *from.server,
        {.what = request::kind::get, .recursive = job.recursive, .resume = job.resume, .path = from.path});
    receive_tree(server, here, job.resume, to);
  }
}

void put(channel& server, const copy_job& job, report& to) {
  for (const auto& from : job.sources) {
    to.source(from.path);
    ask(server, *job.target.server,
        {.what = request::kind::put,
         .recursive = job.recursive,
         .resume = job.resume,
         .into_directory = job.sources.size() > 1,
         .path = job.target.path});
    send_tree(server, tree::of_user(), from.path, job.recursive, to);
  }
}

} // namespace

void run_copy(const copy_job& job, report& to) {
  const bool download = !job.target.server;
  const std::string& server = download ? *job.sources.front().server : *job.target.server;

  std::optional<destination> here; // checked before connecting
  if (download) {
    try {
      here = destination::choose(tree::of_user(), job.target.path, job.sources.size() > 1);
    } catch (const file_error& e) {
      throw file_error(fmt::format("{}: {}", job.target.path, e.what()));
    }
  }

  try {
    // The adapter that reaches the server, and the server's address in a family that this adapter has.
    auto ia = dat::ia::open_by_route(server).value();
    const auto addresses = dat::resolve(server, job.port.port()).value();
    const auto address =
        std::ranges::find_if(addresses, [&](const auto& a) { return ia.address(a.family()).has_value(); });
    if (address == addresses.end()) throw connection_error("its addresses are of another family than the adapter's");

    channel link(ia, job.ring, [] { return stop_requested.load(); });
    link.connect(*address, job.port);
    if (download)
      get(link, job, *here, to);
    else
      put(link, job, to);
    link.hang_up();
  } catch (const stranger& e) {
    throw stranger(fmt::format("{}: {}", server, e.what()));
  } catch (const connection_error& e) {
    throw connection_error(fmt::format("{}: {}", server, e.what()));
  } catch (const protocol_error& e) {
    throw protocol_error(fmt::format("{}: {}", server, e.what()));
  } catch (const dat::failure& e) {
    throw connection_error(fmt::format("{}: {}", server, e.what()));
  }
}

} // namespace datcp
