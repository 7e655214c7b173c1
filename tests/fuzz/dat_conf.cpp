// The text of dat.conf and of DAT_OVERRIDE: any text results in entries and remarks about its lines.
// SPDX-License-Identifier: BSL-1.0
#include "input.hpp"

#include <dat/registry.hpp>

#include <dat/detail/discovery/dat_conf.hpp>

#include <algorithm>

namespace {

using namespace fuzz;

std::size_t lines_of(std::string_view text) { return static_cast<std::size_t>(std::ranges::count(text, '\n')) + 1; }

} // namespace

/// The first 0 byte separates the two texts.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string all(reinterpret_cast<const char*>(bytes), size);
  const auto middle = all.find('\0');
  const std::string_view text = std::string_view(all).substr(0, middle);
  const std::string_view overrides =
      middle == std::string::npos ? std::string_view() : std::string_view(all).substr(middle + 1);
  const dat::conf c = dat::conf::parse(text, "text", overrides, "overrides");
  for (const auto& d : c.diagnostics) {
    require(d.line <= lines_of(d.file == "text" ? text : overrides), "a remark about a line that is not there");
    require(!d.message().empty(), "an empty remark");
  }
  for (const auto& e : c.entries) {
    require(!e.ia_name.empty() && e.ia_name.size() <= 255, "a name of no or of too many characters");
    (void)dat::detail::conf_instance::of(e.instance_data);
    const auto same = [&](const dat::conf_entry& o) {
      return o.chosen && o.ia_name == e.ia_name && o.user_level == e.user_level && o.api_major == e.api_major &&
             o.api_minor == e.api_minor && o.thread_safe == e.thread_safe;
    };
    require(std::ranges::count_if(c.entries, same) <= 1, "two entries are chosen for one name");
  }
  // The part of the text that ia::open uses.
  const dat::detail::conf_texts texts{text, overrides};
  for (const auto& e : c.entries) {
    dat::detail::version_match m{e.api_major, e.api_minor, e.thread_safe};
    const auto found = texts.find(e.ia_name, m);
    if (e.chosen && e.user_level) require(m.found && found.name == e.ia_name, "a chosen entry is not found");
  }
  const dat::registry names({}, c);
  for (const auto& p : names.list())
    require(static_cast<bool>(names.find(p.name, {p.api_major, p.api_minor, p.thread_safe})),
            "a listed name is not found");
  return 0;
}
