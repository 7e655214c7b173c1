# dat-lab: commands on software RDMA devices in a virtual machine. The program begins in program.py.
# SPDX-License-Identifier: BSL-1.0
