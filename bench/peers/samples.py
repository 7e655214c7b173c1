# Outputs of the peers' programs as they were recorded in the lab, without their beginning where they are long; test_peers.py reads them.
# SPDX-License-Identifier: BSL-1.0
"""(parser, output, value)."""

RECORDED = [
    ("own", "result 58.5810\n", 58.581),
    ("perftest_latency", " Link type       : Ethernet\n"
     " GID index       : 1\n"
     " Max inline data : 0[B]\n"
     " rdma_cm QPs\t : OFF\n"
     " Data ex. method : Ethernet\n"
     "---------------------------------------------------------------------------------------\n"
     " local address: LID 0000 QPN 0x0022 PSN 0x27d783\n"
     " GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:78:02:01\n"
     " remote address: LID 0000 QPN 0x0026 PSN 0xd50bec\n"
     " GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:78:01:01\n"
     "---------------------------------------------------------------------------------------\n"
     " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n"
     " 8       60          65.56          74.02        65.57    \t       65.65       \t0.26   \t\t74.02   \t\t74.02  \n"
     "---------------------------------------------------------------------------------------\n", 65.57),
    ("perftest_rate", " Link type       : Ethernet\n"
     " GID index       : 1\n"
     " Outstand reads  : 128\n"
     " rdma_cm QPs\t : OFF\n"
     " Data ex. method : Ethernet\n"
     "---------------------------------------------------------------------------------------\n"
     " local address: LID 0000 QPN 0x062e PSN 0x251285 OUT 0x80 RKey 0x00040f VAddr 0x0055d86bbeb000\n"
     " GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:78:02:01\n"
     " remote address: LID 0000 QPN 0x062e PSN 0xb3cb7e OUT 0x80 RKey 0x00049d VAddr 0x0056040b25e000\n"
     " GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:78:01:01\n"
     "---------------------------------------------------------------------------------------\n"
     " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
     " 8          600              0.18               0.18   \t\t   0.023482\n"
     "---------------------------------------------------------------------------------------\n", 23482.0),
    ("rc_pingpong", "  local address:  LID 0x0000, QPN 0x000023, PSN 0xb8a10a, GID ::ffff:10.78.2.1\n"
     "  remote address: LID 0x0000, QPN 0x000027, PSN 0xfd40ac, GID ::ffff:10.78.1.1\n"
     "960 bytes in 0.01 seconds = 0.92 Mbit/sec\n"
     "60 iters in 0.01 seconds = 138.62 usec/iter\n", 69.31),
    ("dtest", "288 Waiting for inbound message....\n"
     "288 inbound rdma_read; send message arrived!\n"
     "288 Received RMR from remote: r_iov: r_key_ctx=4de,va=556c53abc000,len=0x8\n"
     "288 CLIENT: RCV RDMA read buffer contains: server Rah, blah\n"
     "\n"
     "\n"
     " 288 PING DATA with SEND MSG\n"
     "\n"
     "288: Message PingPong: (100 x 8) Total 8526.09 us: latency 42.63 us, BW 0.19 MB/s\n"
     "\n"
     "288: RDMA write (bi-direction): Total=1913.79 usec, itime= 31.90 us, poll=0, 60 x 8, 0.25 MB/sec\n"
     "\n"
     "288: DAPL Test Complete. PASSED\n"
     "\n", 42.63),
    ("dapltest", "    CPU Utilization      : 100.0\n"
     "    Operation Throughput : 23272.95 ops/sec\n"
     "    Bandwidth            : 0.17 MB/sec\n"
     "\n"
     "Latency\n"
     "    Arithmetic mean      : 41.45 us\n"
     "    maximum              : 66.0 us\n"
     "    minimum              : -1.0 us\n"
     "\n"
     "Time Per Post\n"
     "    600 posts without context switches\n"
     "    Arithmetic mean      : 40.84 us\n"
     "    maximum              : 83.0 us\n"
     "    minimum              : -1.0 us\n"
     "\n"
     "    0 posts with context switches\n"
     "\n"
     "Time Per Reap\n"
     "    600 reaps without context switches\n"
     "    Arithmetic mean      : 1.48 us\n"
     "    maximum              : 67.0 us\n"
     "    minimum              : -1.0 us\n"
     "\n"
     "    0 reaps with context switches\n"
     "\n"
     "NOTE: 1 MB = 1024 KB = 1048576 B \n"
     "---------------------------------------------------------------------\n"
     "raw: RW, 600, 8, 1, 32, 100.0, 23272.95, 0.17, 41.45, 40.84, 1.48 \n"
     "---------------------------------------------------------------------\n"
     "DT_cs_Client: ========== End of Work -- Client Exiting\n", 23272.95),
    ("dat_perf_latency", "test,operation,mode,endpoints,depth,shared_queue,bidirectional,bytes,operations,seconds,per_second,bits_per_second,sent,lost,min_us,mean_us,p50_us,p90_us,p99_us,p99.9_us,max_us\n"
     "latency,send,coroutine,1,1,0,0,8,60,0.02189282,2740.624551793693,175399.97131479636,160,0,67.378,68.04460000000003,67.78173973492835,67.78173973492835,95.941,95.941,95.941\n", 67.78173973492835),
    ("dat_perf_rate", "test,operation,mode,endpoints,depth,shared_queue,bidirectional,bytes,operations,seconds,per_second,bits_per_second,sent,lost,min_us,mean_us,p50_us,p90_us,p99_us,p99.9_us,max_us\n"
     "rate,read,coroutine,1,32,0,0,8,600,0.026537948,22609.1331552839,1446984.5219381696,600,0,,,,,,,\n", 22609.1331552839),
    ("instructions", '==337== Callgrind, a call-graph generating cache profiler\n'
     "==337== Copyright (C) 2002-2017, and GNU GPL'd, by Josef Weidendorfer et al.\n"
     '==337== Using Valgrind-3.19.0 and LibVEX; rerun with -h for copyright info\n'
     '==337== Command: build/release/bench/peers/own verbs connect waiting latency 8 200 10.78.2.1 10.78.1.1 21014\n'
     '==337== \n'
     "==337== For interactive control, run 'callgrind_control -h'.\n"
     'result 100.7360\n'
     '==337== \n'
     '==337== Events    : Ir\n'
     '==337== Collected : 4301431\n'
     '==337== \n'
     '==337== I   refs:      4,301,431\n', 4301431.0),
    ("ucx_latency", "+--------------+--------------+------------------------------+---------------------+-----------------------+\n"
     "|              |              |        latency (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |\n"
     "+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+\n"
     "|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |\n"
     "+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+\n"
     "Final:                    50     15.000  4519.200  4519.200        0.00       0.00         221         221\n", 15.0),
    ("ucx_rate", "+--------------+--------------+------------------------------+---------------------+-----------------------+\n"
     "|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |\n"
     "+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+\n"
     "|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |\n"
     "+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+\n"
     "Final:                   100     18.000    20.630    20.630        0.37       0.37       48957       48957\n", 48957.0),
    ("fi_pingpong", "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
     "8       10      =10      160         0.50s      0.00   24812.25       0.00\n", 24812.25),
]  # fmt: skip

HISTOGRAM = """# event histogram
#
# trigger info: hist:keys=common_pid:vals=hitcount:sort=hitcount:size=2048 [active]
#

{ common_pid:        186 } hitcount:        117
{ common_pid:        184 } hitcount:        122
{ common_pid:        183 } hitcount:        124

Totals:
    Hits: 363
    Entries: 3
    Dropped: 0
"""
