"""The table of MPI calls: one line for each function that is counted.

It has all calls of MPI-3.1, which every MPI has, and those of MPI-4 that the MPI's own header
declares.

A line: the name, the form of its wrapper, the kind of call (crdebug.timeline.calls.Kind; for
one-sided calls, after a colon, the effect on the epoch), and the arguments. Each argument is a word
that gives both its type and its part in the call (`dest`, `tag`, `comm`, ...). mpi_wrappers.py
generates the C wrappers from this table, and the log uses its numbers for the calls.

Wrappers: `call` calls the MPI and records the arguments; `post` keeps the request too; `init` keeps
a request that is started later; `comm` registers a communicator; `own` calls a C function written
by hand, because MPI leaves the outcome open; `bare` calls one that also does the counting.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

# C types of the words
_TYPES = {
    "const void *": "origin_addr sendbuf buf compare_addr",
    "MPI_Count": "partition_count",
    "int": (
        "origin_count target_rank target_count sendcount recvcount count root dest tag ndims "
        "reorder n indegree outdegree fd maxprocs color key split_type amode whence nnodes "
        "source required local_leader remote_leader high result_count sendtag recvtag "
        "disp_unit assertion lock_type partitions partition partition_low partition_high length"
    ),
    "MPI_Datatype": (
        "origin_datatype target_datatype sendtype recvtype type etype filetype result_datatype"
    ),
    "MPI_Aint": "target_disp size",
    "MPI_Op": "op",
    "MPI_Win": "win",
    "void *": "recvbuf into result_addr origin_into extra_state baseptr base",
    "MPI_Comm": "comm bridge_comm intercomm",
    "MPI_Request *": "request",
    "const int[]": (
        "recvcounts displs sendcounts sdispls rdispls dims periods remain_dims nodes degrees "
        "targets weights sources sourceweights destinations destweights maxprocs_of "
        "degrees_index edges"
    ),
    "const MPI_Datatype[]": "sendtypes recvtypes",
    "MPI_Comm *": "newcomm comm_in",
    "const char *": "port_name command filename datarep",
    "MPI_Info": "info",
    "MPI_Group": "group",
    "char *[]": "arguments commands",
    "int[]": "errcodes indices",
    "LISTED int[]": "partitions_of",  # const in MPI 4.1
    "char **[]": "argvs",
    "const MPI_Info[]": "infos",
    "MPI_File *": "newfile file_in",
    "MPI_File": "file",
    "MPI_Offset": "file_size file_disp offset",
    "MPI_Status *": "status",
    "MPI_Grequest_query_function *": "query_fn",
    "MPI_Grequest_free_function *": "free_fn",
    "MPI_Grequest_cancel_function *": "cancel_fn",
    "int *": "flag argc provided index outcount size_out",
    "MPI_Message *": "message",
    "char ***": "argv",
    "const MPI_Aint[]": "asdispls ardispls",
    "MPI_Request": "request_of",
    "MPI_Request[]": "requests",
    "MPI_Status[]": "statuses",
    "MPI_Win *": "newwin win_in",
}

_TABLE = """
Finalize                  bare OTHER
Init                      bare OTHER            argc argv
Init_thread               bare OTHER            argc argv required provided
Wtime                     bare TIME
Bsend                     call SEND             buf count type dest tag comm
Rsend                     call SEND             buf count type dest tag comm
Send                      call SEND             buf count type dest tag comm
Ssend                     call SEND             buf count type dest tag comm
Mrecv                     own RECV              into count type message status
Recv                      own RECV              into count type source tag comm status
Sendrecv                  own SENDRECV          sendbuf sendcount sendtype dest sendtag recvbuf
                              recvcount recvtype source recvtag comm status
Sendrecv_replace          own SENDRECV          into count type dest sendtag source recvtag comm
                              status
Improbe                   own PROBE             source tag comm flag message status
Iprobe                    own PROBE             source tag comm flag status
Mprobe                    own PROBE             source tag comm message status
Probe                     own PROBE             source tag comm status
Ibsend                    post POST_SEND        buf count type dest tag comm request
Irsend                    post POST_SEND        buf count type dest tag comm request
Isend                     post POST_SEND        buf count type dest tag comm request
Issend                    post POST_SEND        buf count type dest tag comm request
Imrecv                    own POST_RECV         into count type message request
Irecv                     own POST_RECV         into count type source tag comm request
Bsend_init                init OTHER            buf count type dest tag comm request
Recv_init                 init OTHER            into count type source tag comm request
Rsend_init                init OTHER            buf count type dest tag comm request
Send_init                 init OTHER            buf count type dest tag comm request
Ssend_init                init OTHER            buf count type dest tag comm request
Start                     own POST_SEND         request
Startall                  own POST_SEND         count requests
Request_get_status        own COMPLETE          request_of flag status
Testall                   own COMPLETE          count requests flag statuses
Testany                   own COMPLETE          count requests index flag status
Test                      own COMPLETE          request flag status
Testsome                  own COMPLETE          count requests outcount indices statuses
Waitall                   own COMPLETE          count requests statuses
Waitany                   own COMPLETE          count requests index status
Wait                      own COMPLETE          request status
Waitsome                  own COMPLETE          count requests outcount indices statuses
Cancel                    own CANCEL            request
Request_free              own OTHER             request
Allgather                 call COLLECTIVE       sendbuf sendcount sendtype recvbuf recvcount
                              recvtype comm
Allgatherv                call COLLECTIVE       sendbuf sendcount sendtype recvbuf recvcounts
                              displs recvtype comm
Allreduce                 call COLLECTIVE       sendbuf recvbuf count type op comm
Alltoall                  call COLLECTIVE       sendbuf sendcount sendtype recvbuf recvcount
                              recvtype comm
Alltoallv                 call COLLECTIVE       sendbuf sendcounts sdispls sendtype recvbuf
                              recvcounts rdispls recvtype comm
Alltoallw                 call COLLECTIVE       sendbuf sendcounts sdispls sendtypes recvbuf
                              recvcounts rdispls recvtypes comm
Barrier                   call COLLECTIVE       comm
Bcast                     call COLLECTIVE       into count type root comm
Exscan                    call COLLECTIVE       sendbuf recvbuf count type op comm
Gather                    call COLLECTIVE       sendbuf sendcount sendtype recvbuf recvcount
                              recvtype root comm
Gatherv                   call COLLECTIVE       sendbuf sendcount sendtype recvbuf recvcounts
                              displs recvtype root comm
Neighbor_allgather        call COLLECTIVE       sendbuf sendcount sendtype recvbuf recvcount
                              recvtype comm
Neighbor_allgatherv       call COLLECTIVE       sendbuf sendcount sendtype recvbuf recvcounts
                              displs recvtype comm
Neighbor_alltoall         call COLLECTIVE       sendbuf sendcount sendtype recvbuf recvcount
                              recvtype comm
Neighbor_alltoallv        call COLLECTIVE       sendbuf sendcounts sdispls sendtype recvbuf
                              recvcounts rdispls recvtype comm
Neighbor_alltoallw        call COLLECTIVE       sendbuf sendcounts asdispls sendtypes recvbuf
                              recvcounts ardispls recvtypes comm
Reduce                    call COLLECTIVE       sendbuf recvbuf count type op root comm
Reduce_scatter            call COLLECTIVE       sendbuf recvbuf recvcounts type op comm
Reduce_scatter_block      call COLLECTIVE       sendbuf recvbuf recvcount type op comm
Scan                      call COLLECTIVE       sendbuf recvbuf count type op comm
Scatter                   call COLLECTIVE       sendbuf sendcount sendtype recvbuf recvcount
                              recvtype root comm
Scatterv                  call COLLECTIVE       sendbuf sendcounts displs sendtype recvbuf
                              recvcount recvtype root comm
Iallgather                post POST_COLLECTIVE  sendbuf sendcount sendtype recvbuf recvcount
                              recvtype comm request
Iallgatherv               post POST_COLLECTIVE  sendbuf sendcount sendtype recvbuf recvcounts
                              displs recvtype comm request
Iallreduce                post POST_COLLECTIVE  sendbuf recvbuf count type op comm request
Ialltoall                 post POST_COLLECTIVE  sendbuf sendcount sendtype recvbuf recvcount
                              recvtype comm request
Ialltoallv                post POST_COLLECTIVE  sendbuf sendcounts sdispls sendtype recvbuf
                              recvcounts rdispls recvtype comm request
Ialltoallw                post POST_COLLECTIVE  sendbuf sendcounts sdispls sendtypes recvbuf
                              recvcounts rdispls recvtypes comm request
Ibarrier                  post POST_COLLECTIVE  comm request
Ibcast                    post POST_COLLECTIVE  into count type root comm request
Iexscan                   post POST_COLLECTIVE  sendbuf recvbuf count type op comm request
Igather                   post POST_COLLECTIVE  sendbuf sendcount sendtype recvbuf recvcount
                              recvtype root comm request
Igatherv                  post POST_COLLECTIVE  sendbuf sendcount sendtype recvbuf recvcounts
                              displs recvtype root comm request
Ineighbor_allgather       post POST_COLLECTIVE  sendbuf sendcount sendtype recvbuf recvcount
                              recvtype comm request
Ineighbor_allgatherv      post POST_COLLECTIVE  sendbuf sendcount sendtype recvbuf recvcounts
                              displs recvtype comm request
Ineighbor_alltoall        post POST_COLLECTIVE  sendbuf sendcount sendtype recvbuf recvcount
                              recvtype comm request
Ineighbor_alltoallv       post POST_COLLECTIVE  sendbuf sendcounts sdispls sendtype recvbuf
                              recvcounts rdispls recvtype comm request
Ineighbor_alltoallw       post POST_COLLECTIVE  sendbuf sendcounts asdispls sendtypes recvbuf
                              recvcounts ardispls recvtypes comm request
Ireduce                   post POST_COLLECTIVE  sendbuf recvbuf count type op root comm request
Ireduce_scatter           post POST_COLLECTIVE  sendbuf recvbuf recvcounts type op comm request
Ireduce_scatter_block     post POST_COLLECTIVE  sendbuf recvbuf recvcount type op comm request
Iscan                     post POST_COLLECTIVE  sendbuf recvbuf count type op comm request
Iscatter                  post POST_COLLECTIVE  sendbuf sendcount sendtype recvbuf recvcount
                              recvtype root comm request
Iscatterv                 post POST_COLLECTIVE  sendbuf sendcounts displs sendtype recvbuf
                              recvcount recvtype root comm request
Cart_create               comm COMM             comm ndims dims periods reorder newcomm
Cart_sub                  comm COMM             comm remain_dims newcomm
Comm_accept               comm COMM             port_name info root comm newcomm
Comm_connect              comm COMM             port_name info root comm newcomm
Comm_create_group         comm COMM             comm group tag newcomm
Comm_create               comm COMM             comm group newcomm
Comm_dup                  comm COMM             comm newcomm
Comm_dup_with_info        comm COMM             comm info newcomm
Dist_graph_create         comm COMM             comm n nodes degrees targets weights info
                              reorder newcomm
Dist_graph_create_adjacent comm COMM            comm indegree sources sourceweights outdegree
                              destinations destweights info reorder newcomm
Comm_join                 comm COMM             fd newcomm
Comm_spawn                comm COMM             command arguments maxprocs info root comm
                              newcomm errcodes
Comm_spawn_multiple       comm COMM             count commands argvs maxprocs_of infos root comm
                              newcomm errcodes
Comm_split                comm COMM             comm color key newcomm
Comm_split_type           comm COMM             comm split_type key info newcomm
Graph_create              comm COMM             comm nnodes degrees_index edges reorder newcomm
Intercomm_create          comm COMM             comm local_leader bridge_comm remote_leader tag
                              newcomm
Intercomm_merge           comm COMM             intercomm high newcomm
Comm_disconnect           own COMM              comm_in
Comm_idup                 own COMM              comm newcomm request
Comm_free                 own COMM              comm_in
Accumulate                call RMA:ACCESS       origin_addr origin_count origin_datatype
                              target_rank target_disp target_count target_datatype op win
Compare_and_swap          call RMA:ACCESS       origin_addr compare_addr result_addr type
                              target_rank target_disp win
Fetch_and_op              call RMA:ACCESS       origin_addr result_addr type target_rank
                              target_disp op win
Get                       call RMA:ACCESS       origin_into origin_count origin_datatype
                              target_rank target_disp target_count target_datatype win
Put                       call RMA:ACCESS       origin_addr origin_count origin_datatype
                              target_rank target_disp target_count target_datatype win
Raccumulate               post RMA:ACCESS       origin_addr origin_count origin_datatype
                              target_rank target_disp target_count target_datatype op win
                              request
Rget                      post RMA:ACCESS       origin_into origin_count origin_datatype
                              target_rank target_disp target_count target_datatype win request
Rget_accumulate           post RMA:ACCESS       origin_addr origin_count origin_datatype
                              result_addr result_count result_datatype target_rank target_disp
                              target_count target_datatype op win request
Rput                      post RMA:ACCESS       origin_addr origin_count origin_datatype
                              target_rank target_disp target_count target_datatype win request
Win_allocate              call RMA              size disp_unit info comm baseptr newwin
Win_allocate_shared       call RMA              size disp_unit info comm baseptr newwin
Win_complete              call RMA:COMPLETE     win
Win_create                call RMA              base size disp_unit info comm newwin
Win_create_dynamic        call RMA              info comm newwin
Win_fence                 call RMA:FENCE        assertion win
Win_flush                 call RMA:FLUSH        target_rank win
Win_flush_all             call RMA:FLUSH        win
Win_flush_local           call RMA              target_rank win
Win_flush_local_all       call RMA              win
Win_free                  call RMA:FREE         win_in
Win_lock                  call RMA:LOCK         lock_type target_rank assertion win
Win_lock_all              call RMA:LOCK         assertion win
Win_post                  call RMA:POST         group assertion win
Win_start                 call RMA:START        group assertion win
Win_sync                  call RMA              win
Win_test                  own RMA               win flag
Win_unlock                call RMA:UNLOCK       target_rank win
Win_unlock_all            call RMA:UNLOCK       win
Win_wait                  call RMA:WAITED       win
Get_accumulate            call RMA:ACCESS       origin_addr origin_count origin_datatype
                              result_addr result_count result_datatype target_rank target_disp
                              target_count target_datatype op win
File_open                 call OTHER            comm filename amode info newfile
File_close                call OTHER            file_in
File_set_size             call OTHER            file file_size
File_preallocate          call OTHER            file file_size
File_set_view             call OTHER            file file_disp etype filetype datarep info
File_read_at              call OTHER            file offset into count type status
File_read_at_all          call OTHER            file offset into count type status
File_write_at             call OTHER            file offset buf count type status
File_write_at_all         call OTHER            file offset buf count type status
File_iread_at             post OTHER            file offset into count type request
File_iwrite_at            post OTHER            file offset buf count type request
File_iread_at_all         post OTHER            file offset into count type request
File_iwrite_at_all        post OTHER            file offset buf count type request
File_read                 call OTHER            file into count type status
File_read_all             call OTHER            file into count type status
File_write                call OTHER            file buf count type status
File_write_all            call OTHER            file buf count type status
File_iread                post OTHER            file into count type request
File_iwrite               post OTHER            file buf count type request
File_iread_all            post OTHER            file into count type request
File_iwrite_all           post OTHER            file buf count type request
File_read_shared          call OTHER            file into count type status
File_write_shared         call OTHER            file buf count type status
File_iread_shared         post OTHER            file into count type request
File_iwrite_shared        post OTHER            file buf count type request
File_read_ordered         call OTHER            file into count type status
File_write_ordered        call OTHER            file buf count type status
File_seek_shared          call OTHER            file offset whence
File_read_at_all_begin    call OTHER            file offset into count type
File_read_at_all_end      call OTHER            file into status
File_write_at_all_begin   call OTHER            file offset buf count type
File_write_at_all_end     call OTHER            file buf status
File_read_all_begin       call OTHER            file into count type
File_read_all_end         call OTHER            file into status
File_write_all_begin      call OTHER            file buf count type
File_write_all_end        call OTHER            file buf status
File_read_ordered_begin   call OTHER            file into count type
File_read_ordered_end     call OTHER            file into status
File_write_ordered_begin  call OTHER            file buf count type
File_write_ordered_end    call OTHER            file buf status
File_sync                 call OTHER            file
Grequest_start            post OTHER            query_fn free_fn cancel_fn extra_state request
Buffer_detach             call OTHER            into size_out
"""

_NEWER = """
Isendrecv                 own POST_SENDRECV     sendbuf sendcount sendtype dest sendtag recvbuf
                              recvcount recvtype source recvtag comm request
Isendrecv_replace         own POST_SENDRECV     into count type dest sendtag source recvtag comm
                              request
Comm_idup_with_info       own COMM              comm info newcomm request
Buffer_flush              call OTHER
Buffer_iflush             post OTHER            request
Comm_detach_buffer        call OTHER            comm into size_out
Comm_flush_buffer         call OTHER            comm
Comm_iflush_buffer        post OTHER            comm request
Psend_init                own OTHER             buf partitions partition_count type dest tag comm
                              info request
Precv_init                own OTHER             into partitions partition_count type source tag
                              comm info request
Pready                    own READY             partition request_of
Pready_range              own READY             partition_low partition_high request_of
Pready_list               own READY             length partitions_of request_of
Parrived                  own PROBE             request_of partition flag
"""


@dataclass(frozen=True, slots=True)
class Argument:
    """word: its part in the call. type: in C; an array's ends in []."""

    word: str
    type: str

    @property
    def declared(self) -> str:
        base, array, _ = self.type.partition("[]")
        return f"{base}{'' if base.endswith('*') else ' '}{self.word}{array}"


@dataclass(frozen=True, slots=True)
class Function:
    """One MPI function. number: in the log. epoch: see enum epoch_event in pmpi.h. newer: it is
    newer than MPI-3.1, and not in every MPI."""

    number: int
    name: str  # without MPI_
    shape: str
    kind: str
    epoch: str
    arguments: tuple[Argument, ...]
    newer: bool = False

    @property
    def full(self) -> str:
        return f"MPI_{self.name}"

    @property
    def prepares(self) -> bool:
        """Does it prepare an operation of several ranks' requests together: a collective, or a
        partitioned message?"""
        together = self.shape == "init" and self.kind == "COLLECTIVE"
        return together or self.name in ("Psend_init", "Precv_init")

    @property
    def result(self) -> str:
        return "double" if self.name == "Wtime" else "int"

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(argument.word for argument in self.arguments)

    @property
    def posts(self) -> bool:
        """Does it return a request that a later call completes?"""
        made = self.kind == "COMM" or self.kind.startswith("POST_")
        return "request" in self.words and (self.shape == "post" or (self.shape == "own" and made))


def _parse(text: str, first: int = 1, *, newer: bool = False) -> tuple[Function, ...]:
    type_of = {word: type_ for type_, words in _TYPES.items() for word in words.split()}
    lines: list[str] = []
    for line in text.strip().splitlines():
        if line.startswith(" "):
            lines[-1] += line
        else:
            lines.append(line)
    found = []
    for number, line in enumerate(lines, first):
        name, shape, kind, *words = line.split()
        kind, _, epoch = kind.partition(":")
        arguments = tuple(Argument(word, type_of[word]) for word in words)
        found.append(Function(number, name, shape, kind, epoch, arguments, newer))
    return tuple(found)


def _persistent(posted: Function, number: int) -> Function:
    """The persistent variant of a nonblocking collective."""
    name = f"{posted.name[1:].capitalize()}_init"
    arguments = (*posted.arguments[:-1], Argument("info", "MPI_Info"), posted.arguments[-1])
    return Function(number, name, "init", "COLLECTIVE", "", arguments, newer=True)


_OLD = _parse(_TABLE)
_KNOWN = (*_OLD, *_parse(_NEWER, len(_OLD) + 1, newer=True))
_POSTED = [function for function in _OLD if function.kind == "POST_COLLECTIVE"]
FUNCTIONS = (
    *_KNOWN,
    *(_persistent(posted, number) for number, posted in enumerate(_POSTED, len(_KNOWN) + 1)),
)
BY_NUMBER = {function.number: function for function in FUNCTIONS}
BY_NAME = {function.full: function for function in FUNCTIONS}
# A log is valid only for one numbering of the calls.
DIGEST = int.from_bytes(
    hashlib.sha256(" ".join(function.name for function in FUNCTIONS).encode()).digest()[:8],
    "little",
)
