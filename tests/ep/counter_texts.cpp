// The text forms of counters: Prometheus and JSON.
// SPDX-License-Identifier: BSL-1.0
#include "world.hpp"

#include <dat/counters.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <map>
#include <span>
#include <sstream>

using namespace unit;
using dat::connection_outcome;
using dat::dto_operation;

TEST_CASE("the numbers have a form for Prometheus and one for JSON", "[counters]") {
  dat::counter_values v;
  CHECK(to_prometheus(v).find("operations") == std::string::npos); // operations that never occurred are left out
  v.operations[static_cast<std::size_t>(dto_operation::send)] = {3, 30, 2, 20};
  v.failures[static_cast<std::size_t>(dat::dto_status::flushed)] = 1;
  v.connection_outcomes[0] = 4;
  v.empty_drains = 18446744073709551615u;
  v.wake_ups = 5;
  v.most_requests = 9;
  CHECK(to_prometheus(v, "ep=\"17\"") == "# TYPE dat_operations_posted_total counter\n"
                                         "dat_operations_posted_total{operation=\"send\",ep=\"17\"} 3\n"
                                         "# TYPE dat_bytes_posted_total counter\n"
                                         "dat_bytes_posted_total{operation=\"send\",ep=\"17\"} 30\n"
                                         "# TYPE dat_operations_completed_total counter\n"
                                         "dat_operations_completed_total{operation=\"send\",ep=\"17\"} 2\n"
                                         "# TYPE dat_bytes_completed_total counter\n"
                                         "dat_bytes_completed_total{operation=\"send\",ep=\"17\"} 20\n"
                                         "# TYPE dat_operations_failed_total counter\n"
                                         "dat_operations_failed_total{status=\"flushed\",ep=\"17\"} 1\n"
                                         "# TYPE dat_connection_events_total counter\n"
                                         "dat_connection_events_total{event=\"established\",ep=\"17\"} 4\n"
                                         "# TYPE dat_connection_requests_total counter\n"
                                         "dat_connection_requests_total{ep=\"17\"} 0\n"
                                         "# TYPE dat_other_events_total counter\n"
                                         "dat_other_events_total{ep=\"17\"} 0\n"
                                         "# TYPE dat_refused_posts_total counter\n"
                                         "dat_refused_posts_total{ep=\"17\"} 0\n"
                                         "# TYPE dat_drains_total counter\n"
                                         "dat_drains_total{ep=\"17\"} 0\n"
                                         "# TYPE dat_empty_drains_total counter\n"
                                         "dat_empty_drains_total{ep=\"17\"} 18446744073709551615\n"
                                         "# TYPE dat_expired_waits_total counter\n"
                                         "dat_expired_waits_total{ep=\"17\"} 0\n"
                                         "# TYPE dat_wake_ups_total counter\n"
                                         "dat_wake_ups_total{ep=\"17\"} 5\n"
                                         "# TYPE dat_most_drained gauge\n"
                                         "dat_most_drained{ep=\"17\"} 0\n"
                                         "# TYPE dat_most_requests gauge\n"
                                         "dat_most_requests{ep=\"17\"} 9\n"
                                         "# TYPE dat_most_receives gauge\n"
                                         "dat_most_receives{ep=\"17\"} 0\n");
  const auto j = nlohmann::json::parse(to_json(v));
  CHECK(j.at("operations_posted").at("send") == 3);
  CHECK(j.at("bytes_completed").at("send") == 20);
  CHECK(j.at("operations_failed") == nlohmann::json{{"flushed", 1}});
  CHECK(j.at("connection_events").at("established") == 4);
  CHECK(j.at("empty_drains") == 18446744073709551615u);
  CHECK(j.at("wake_ups") == 5);
  CHECK(j.at("most_requests") == 9);
  CHECK_NOTHROW(nlohmann::json::parse(to_json(dat::counter_values{})));
}

TEST_CASE("the text for Prometheus has each metric once, with the samples of all objects", "[counters]") {
  dat::counter_values one;
  one.operations[static_cast<std::size_t>(dto_operation::send)] = {3, 30, 2, 20};
  one.wake_ups = 5;
  dat::counter_values two;
  two.operations[static_cast<std::size_t>(dto_operation::recv)] = {1, 10, 0, 0};
  const auto first = must(dat::prometheus_labels({{"ep", "1"}, {"host", "a \"b\" \\ \n"}}));
  CHECK(first == "ep=\"1\",host=\"a \\\"b\\\" \\\\ \\n\"");
  const auto text =
      to_prometheus(std::array{dat::labelled_counters{first, one}, dat::labelled_counters{"ep=\"2\"", two}});
  std::map<std::string, int> types;
  std::istringstream lines(text);
  std::string current;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      current = line.substr(7, line.find(' ', 7) - 7);
      CHECK(++types[current] == 1);
    } else {
      CHECK(line.starts_with(current + "{"));
    }
  }
  CHECK(text.starts_with("# TYPE dat_operations_posted_total counter\n"
                         "dat_operations_posted_total{operation=\"send\"," +
                         first +
                         "} 3\n"
                         "dat_operations_posted_total{operation=\"recv\",ep=\"2\"} 1\n"
                         "# TYPE dat_bytes_posted_total counter\n"));
  CHECK(text.find("dat_wake_ups_total{" + first + "} 5\ndat_wake_ups_total{ep=\"2\"} 0\n") != std::string::npos);
  CHECK(to_prometheus(std::span<const dat::labelled_counters>()).empty());
}

TEST_CASE("each number has its name in the text", "[counters]") {
  dat::counter_values v;
  std::uint64_t n = 100;
  const auto named = [](std::size_t i) { return !to_string(static_cast<dto_operation>(i)).starts_with("unknown"); };
  std::size_t operations = 0;
  for (std::size_t i = 0; i < v.operations.size(); ++i)
    if (named(i)) { // two numbers are no operation
      v.operations[i] = {n, n + 1, n + 2, n + 3};
      n += 4;
      ++operations;
    }
  for (auto& f : v.failures) f = n++;
  for (auto& o : v.connection_outcomes) o = n++;
  const auto numbers = {&v.connection_requests, &v.other_events, &v.refused_posts, &v.drains,        &v.empty_drains,
                        &v.expired_waits,       &v.wake_ups,     &v.most_drained,  &v.most_requests, &v.most_receives};
  for (auto* one : numbers) *one = n++;
  const auto j = nlohmann::json::parse(to_json(v));
  for (const char* metric : {"operations_posted", "bytes_posted", "operations_completed", "bytes_completed"})
    CHECK(j.at(metric).size() == operations);
  for (std::size_t i = 0; i < v.operations.size(); ++i) {
    if (!named(i)) continue;
    const std::string name(to_string(static_cast<dto_operation>(i)));
    CHECK(j.at("operations_posted").at(name) == v.operations[i].posted);
    CHECK(j.at("bytes_posted").at(name) == v.operations[i].posted_bytes);
    CHECK(j.at("operations_completed").at(name) == v.operations[i].completed);
    CHECK(j.at("bytes_completed").at(name) == v.operations[i].bytes);
  }
  CHECK(j.at("operations_failed").size() == v.failures.size());
  for (std::size_t i = 0; i < v.failures.size(); ++i)
    CHECK(j.at("operations_failed").at(std::string(to_string(static_cast<dat::dto_status>(i)))) == v.failures[i]);
  CHECK(j.at("connection_events").size() == v.connection_outcomes.size());
  for (std::size_t i = 0; i < v.connection_outcomes.size(); ++i)
    CHECK(j.at("connection_events").at(std::string(to_string(static_cast<dat::connection_outcome>(i)))) ==
          v.connection_outcomes[i]);
  const char* const names[] = {"connection_requests", "other_events",  "refused_posts", "drains",
                               "empty_drains",        "expired_waits", "wake_ups",      "most_drained",
                               "most_requests",       "most_receives"};
  for (std::size_t i = 0; i < std::size(names); ++i) CHECK(j.at(names[i]) == **(numbers.begin() + i));
  CHECK(j.size() == 6 + std::size(names));
}

TEST_CASE("a label has letters, digits and underscores, and does not begin with a digit", "[counters]") {
  for (int c = 1; c < 256; ++c) {
    const auto is_in = [c](char first, char last) { return c >= first && c <= last; };
    const bool digit = is_in('0', '9');
    const bool letter = is_in('a', 'z') || is_in('A', 'Z') || c == '_';
    const std::string one(1, static_cast<char>(c));
    CAPTURE(c);
    CHECK(dat::prometheus_labels({{one, "x"}}).has_value() == letter);
    CHECK(dat::prometheus_labels({{"a" + one, "x"}}).has_value() == (letter || digit));
  }
}

TEST_CASE("a name that Prometheus does not allow is no label", "[counters]") {
  for (const char* name : {"", "1st", "a-b", "a b", "\xc3\xa4"}) {
    CAPTURE(name);
    is_error(dat::prometheus_labels({{"good", "x"}, {name, "x"}}), dat::return_type::invalid_parameter,
             dat::return_subtype::arg1);
  }
  CHECK(must(dat::prometheus_labels({})).empty());
  CHECK(must(dat::prometheus_labels({{"_a1", ""}})) == "_a1=\"\"");
}

TEST_CASE("the counters of a device have the same forms", "[counters]") {
  const std::array two{dat::device_counter{"rcvd_pkts", 7}, dat::device_counter{"sent \"x\"", 18446744073709551615u}};
  CHECK(to_prometheus(two, "device=\"rx1\"") ==
        "# TYPE dat_device_counter untyped\n"
        "dat_device_counter{counter=\"rcvd_pkts\",device=\"rx1\"} 7\n"
        "dat_device_counter{counter=\"sent \\\"x\\\"\",device=\"rx1\"} 18446744073709551615\n");
  CHECK(nlohmann::json::parse(to_json(two)) == nlohmann::json{{"rcvd_pkts", 7}, {"sent \"x\"", 18446744073709551615u}});
  CHECK(to_prometheus(std::span<const dat::device_counter>()).empty());
  CHECK(to_json(std::span<const dat::device_counter>()) == "{}");
}

TEST_CASE("a device whose driver reports no counters says so", "[counters]") {
  clean_world world;
  auto ia = must(dat::ia::open("fk1", manual));
  is_error(dat::read_device_counters(ia), dat::return_type::model_not_supported);
  must(ia.close());
  is_error(dat::read_device_counters(ia), dat::return_type::invalid_handle, dat::return_subtype::handle_ia);
}
