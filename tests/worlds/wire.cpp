// Writes each wire form as a line, or reads the lines that another machine has written.
// SPDX-License-Identifier: BSL-1.0
#include <worlds/wire_forms.hpp>

#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

namespace {

int write() {
  for (const auto& form : worlds::forms()) std::cout << form.name << ": " << worlds::to_hex(form.write()) << '\n';
  return std::cout.flush() ? 0 : 1;
}

int read(const char* file) {
  std::ifstream from(file);
  std::map<std::string, std::string, std::less<>> lines;
  for (std::string line; std::getline(from, line);)
    if (const auto colon = line.find(": "); colon != line.npos) lines[line.substr(0, colon)] = line.substr(colon + 2);
  int failed = 0;
  for (const auto& form : worlds::forms()) {
    const auto line = lines.find(form.name);
    const bool good = line != lines.end() && form.reads(worlds::from_hex(line->second));
    if (!good) {
      std::cout << form.name << (line == lines.end() ? ": no such line\n" : ": other values\n");
      ++failed;
    }
  }
  std::cout << worlds::forms().size() - static_cast<std::size_t>(failed) << " passed, " << failed << " failed\n";
  return failed == 0 ? 0 : 1;
}

} // namespace

int main(int n, char** words) {
  const std::string_view what = n > 1 ? words[1] : "";
  if (what == "write" && n == 2) return write();
  if (what == "read" && n == 3) return read(words[2]);
  std::cerr << "usage: wire write | wire read FILE\n";
  return 2;
}
