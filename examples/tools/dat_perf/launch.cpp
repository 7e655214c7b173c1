// Programs on other hosts, by ssh, Slurm, MPI or a command of the user.
// SPDX-License-Identifier: BSL-1.0
#include "launch.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace perf {

namespace {

/// Quotes a word so that a shell does not change it.
std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + '\'';
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// Milliseconds for poll, rounded up.
int until_then(clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

[[noreturn]] void no_process(const std::string& program, int error) {
  throw std::runtime_error(fmt::format("cannot start {}: {}", program, std::strerror(error)));
}

} // namespace

std::vector<std::string> command_on(const options& o, const std::string& host,
                                    const std::vector<std::string>& arguments) {
  std::vector<std::string> command;
  if (o.launch == "ssh") { // whose remote shell gets one text
    std::string text = quoted(o.program);
    for (const std::string& a : arguments) text += ' ' + quoted(a);
    return {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", host, text};
  }
  if (o.launch == "srun") {
    command = {"srun", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=" + host};
  } else if (o.launch == "mpi") {
    command = {"mpiexec", "-n", "1", "-host", host};
  } else {
    bool named = false;
    for (std::string word : words_of(o.launch)) {
      if (const std::size_t at = word.find("{host}"); at != std::string::npos) {
        word.replace(at, 6, host);
        named = true;
      }
      command.push_back(word);
    }
    if (!named) command.push_back(host);
  }
  command.push_back(o.program);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

void need_launcher(const options& o) {
  const std::string program = command_on(o, "host", {}).front();
  if (program.find('/') != std::string::npos) {
    if (access(program.c_str(), X_OK) == 0) return;
  } else {
    const char* const path = std::getenv("PATH");
    std::istringstream folders(path != nullptr ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');)
      if (access(fmt::format("{}/{}", folder, program).c_str(), X_OK) == 0) return;
  }
  throw std::runtime_error(
      fmt::format("--launch: the program {} is not there: install it, or choose another of ssh, srun, mpi "
                  "or a command",
                  program));
}

child::child(const std::vector<std::string>& command, bool serves)
    : program_(command.front()), output_(std::tmpfile()), errors_(std::tmpfile()) {
  if (!output_ || !errors_) no_process(program_, errno);
  std::array<int, 2> input{-1, -1}, lines{-1, -1};
  if (serves && (pipe2(input.data(), O_CLOEXEC) != 0 || pipe2(lines.data(), O_CLOEXEC) != 0))
    no_process(program_, errno);
  posix_spawn_file_actions_t actions{};
  posix_spawn_file_actions_init(&actions);
  if (serves)
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  else
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, serves ? lines[1] : fileno(output_.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(errors_.get()), STDERR_FILENO);
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int error = posix_spawnp(&pid_, arguments.front(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (serves) {
    close(input[0]);
    close(lines[1]);
    input_ = input[1];
    lines_ = lines[0];
  }
  if (error == 0) ended_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (error != 0 || ended_ < 0) {
    const int reason = error != 0 ? error : errno;
    end_input();
    if (lines_ >= 0) close(lines_);
    no_process(program_, reason);
  }
}

child::~child() {
  end_input();
  if (code_ < 0) {
    kill(pid_, SIGTERM);
    if (!wait(clock::now() + std::chrono::seconds(5))) {
      kill(pid_, SIGKILL);
      wait(clock::now() + std::chrono::seconds(5));
    }
  }
  close(ended_);
  if (lines_ >= 0) close(lines_);
}

std::optional<std::string> child::first_line(clock::time_point until) {
  std::string line;
  for (;;) {
    pollfd there{lines_, POLLIN, 0};
    if (const int n = poll(&there, 1, until_then(until)); n < 0 && errno == EINTR)
      continue;
    else if (n <= 0)
      return std::nullopt;
    char c = 0;
    if (read(lines_, &c, 1) <= 0) return std::nullopt;
    if (c == '\n') return line;
    line += c;
  }
}

void child::end_input() {
  if (input_ >= 0) close(input_);
  input_ = -1;
}

bool child::wait(clock::time_point until) {
  while (code_ < 0) {
    pollfd over{ended_, POLLIN, 0};
    const int n = poll(&over, 1, until_then(until));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    int status = 0;
    if (waitpid(pid_, &status, 0) == pid_) code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return true;
}

std::string child::content(const file& of) {
  std::string text;
  std::array<char, 4096> part{};
  std::rewind(of.get());
  for (std::size_t n = 0; (n = std::fread(part.data(), 1, part.size(), of.get())) != 0;) text.append(part.data(), n);
  return text;
}
std::string child::output() const { return content(output_); }

std::string child::problem() const {
  std::istringstream lines(content(errors_));
  std::string last;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) last = line;
  if (last.starts_with("dat-perf: ")) last.erase(0, 10);
  return !last.empty() ? last : fmt::format("{} has ended with exit code {}", program_, code_);
}

} // namespace perf
